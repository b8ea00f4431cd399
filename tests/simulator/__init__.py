"""A Kubernetes cluster in memory, for runs of the operator's shell under virtual time."""
