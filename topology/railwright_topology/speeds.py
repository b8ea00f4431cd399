"""Format link speeds."""

from __future__ import annotations


def text(bytes_per_s: int) -> str:
    """A speed such as ``200 Gb/s``."""
    return f"{round(bytes_per_s * 8 / 1e9):,} Gb/s"
