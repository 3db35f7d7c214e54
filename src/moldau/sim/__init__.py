"""The simulated twin of the runtime: virtual time, seeded chance, in-memory network and disks."""
