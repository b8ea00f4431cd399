"""Where a gang goes: the fewest racks, then the fewest blocks, and so on; rank by rank."""

from __future__ import annotations

from railwright_scheduler.placement.choose import choose, fewest_domains
from railwright_scheduler.placement.constraints import (
    ANYWHERE,
    LevelLimit,
    ResolvedConstraints,
    capacity,
    caps,
    level_caps,
)
from railwright_scheduler.placement.domains import places

__all__ = [
    "ANYWHERE",
    "LevelLimit",
    "ResolvedConstraints",
    "capacity",
    "caps",
    "choose",
    "fewest_domains",
    "level_caps",
    "places",
]
