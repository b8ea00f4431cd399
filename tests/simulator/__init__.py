"""A Kubernetes cluster in memory, in which the operator runs under virtual time."""
