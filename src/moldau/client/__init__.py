"""The asyncio client: connections, the cluster as clients see it, admin, produce and fetch."""
