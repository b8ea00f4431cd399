"""Speaking to the API server: one client, where things are, what bodies carry, how it fails."""
