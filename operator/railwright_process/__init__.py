"""What both long-running processes have: options, log lines, probes, the server for pods."""
