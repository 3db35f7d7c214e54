"""What the node counts and times, and how it is shown."""
