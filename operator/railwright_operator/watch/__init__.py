"""Informer caches of the cluster, and what is derived from them for a scheduling cycle."""
