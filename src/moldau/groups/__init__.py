"""Groups of consumers: who is in them, what is whose, and how far they have come."""
