"""Speeds of links as people say them."""

from __future__ import annotations


def text(bytes_per_s: int) -> str:
    """Such as ``200 Gb/s``."""
    return f"{round(bytes_per_s * 8 / 1e9):,} Gb/s"
