"""The server of node agents, and their probe tasks."""
