"""The seeds that broke something once."""

from __future__ import annotations

from pathlib import Path

KEPT = Path(__file__).with_name("seeds.txt")


def kept_seeds() -> tuple[int, ...]:
    """All of them, in the order of the file."""
    lines = KEPT.read_text(encoding="utf-8").splitlines()
    return tuple(int(line.split()[0]) for line in lines if line and not line.startswith("#"))
