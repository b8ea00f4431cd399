"""Parts of both long-running processes: options, log lines, probes, the server for pods."""
