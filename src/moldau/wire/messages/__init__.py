"""Message declarations, one file for each API."""
