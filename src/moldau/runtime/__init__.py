"""The only door to the outside: clock, randomness, files, network, threads."""
