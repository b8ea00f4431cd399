"""Writes to the cluster: requests with their preconditions, and the objects in them."""
