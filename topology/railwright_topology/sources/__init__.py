"""Readers of topology and hardware sources, one module each: text in, values out."""
