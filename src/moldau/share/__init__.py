"""Share groups at the leaders of partitions (KIP-932): whose each record is, and what is kept of that."""
