"""What is known of the links between the domains of one level."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Links:
    """``oversubscription``: how many times more nodes can send than can leave one of the level's
    domains; 1 where nobody says. ``leaving`` has the domains whose cables are known, and how many
    of their nodes can send out of them at once, each as fast as all of its adapters go.
    ``reducing`` are those in which every switch was seen to add up what crosses it (SHARP).
    """

    oversubscription: float = 1.0
    leaving: Mapping[str, float] = field(default_factory=dict)
    reducing: frozenset[str] = frozenset()
