"""The pure core: what starts, where, with which ranks, and why the rest waits."""
