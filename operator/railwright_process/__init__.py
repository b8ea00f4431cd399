"""What each of our long-running processes has: options, log lines, probes."""
