"""Reading the cluster: informer caches, and what is derived from them for a scheduling cycle."""
