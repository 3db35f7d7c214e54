"""A node: composition, lifecycle, configuration, metrics and request handlers."""
