"""The links between the domains of one level."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Links:
    """``oversubscription``: bandwidth of a domain's nodes over that of its uplinks; 1 if unknown.
    ``leaving`` has, for domains with known uplinks, how many of their nodes can send out of them at
    once, each at the full speed of its adapters. ``reducing`` are the domains in which every switch
    has in-network reduction (SHARP).
    """

    oversubscription: float = 1.0
    leaving: Mapping[str, float] = field(default_factory=dict)
    reducing: frozenset[str] = frozenset()
