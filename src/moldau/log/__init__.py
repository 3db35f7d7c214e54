"""One partition's log in one directory, and the directories that hold many."""
