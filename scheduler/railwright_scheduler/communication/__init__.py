"""Which ranks of a job talk to each other, how, and how much."""
