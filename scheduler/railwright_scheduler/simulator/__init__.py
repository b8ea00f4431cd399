"""The simulator: real scheduling cycles on a cluster in memory, with seeded faults."""
