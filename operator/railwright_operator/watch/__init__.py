"""Reading the cluster: copies of what is watched, and what is made of them for a turn."""
