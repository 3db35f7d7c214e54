"""Metadata records, the cluster image and its deltas."""
