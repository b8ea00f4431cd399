"""Where a gang goes: the fewest racks, then the fewest blocks, and so on; rank by rank."""

from __future__ import annotations

from railwright_scheduler.placement.choose import choose, fewest_domains
from railwright_scheduler.placement.constraints import (
    ANYWHERE,
    LevelLimit,
    ResolvedConstraints,
    capacity,
    caps,
)

__all__ = [
    "ANYWHERE",
    "LevelLimit",
    "ResolvedConstraints",
    "capacity",
    "caps",
    "choose",
    "fewest_domains",
]
