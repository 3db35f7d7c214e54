"""Share groups (KIP-932): members that take records from the same partitions, each record for one of them."""
