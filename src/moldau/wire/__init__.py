"""Bytes to messages and back: schemas, headers, API table, error codes."""
