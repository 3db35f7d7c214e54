"""Decisions about the cluster: requests in, metadata records and replies out."""
