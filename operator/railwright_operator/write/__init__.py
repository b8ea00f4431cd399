"""Changing the cluster: every request with its precondition, and the objects it carries."""
