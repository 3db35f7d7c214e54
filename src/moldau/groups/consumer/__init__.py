"""Groups of the consumer protocol (KIP-848): the coordinator says who has what, and members follow."""
