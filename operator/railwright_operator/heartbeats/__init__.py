"""The heartbeat server: connections, authentication, and the last messages of launchers."""
