"""What the scheduler decides about, as values: jobs, nodes, workloads, decisions."""
