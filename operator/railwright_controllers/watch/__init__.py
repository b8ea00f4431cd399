"""Caches of the objects that the controllers watch."""
