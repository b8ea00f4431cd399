"""The operator: the shell around the pure core."""
