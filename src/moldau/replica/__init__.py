"""A broker's replicas: leadership, high watermark, fetch sessions, purgatory."""
