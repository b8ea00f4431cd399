"""Derive the domains of nodes from measurements between some of their pairs."""
