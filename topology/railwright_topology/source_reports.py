"""What one source says of where nodes stand, before it is held against what the others say.

Sources count tiers in both directions and call one switch by different names, so what can be
compared between two of them is which nodes they put together, from the nearest tier outwards.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

ISLAND = "island"
"""What the level of device links is called, whatever sources call it."""


class Provenance(enum.IntEnum):
    """How a source came to know, the most trusted last."""

    MEASURED = 1
    """Probes: how well nodes reach each other, from which it follows where they stand. A busy host
    or a slow cable misleads them, and they know no names. So they count where nobody says anything,
    and elsewhere they say what cannot be."""
    TOLD = 2
    """Labels and files that something else made, some time ago."""
    DECLARED = 3
    """The site's own people: a plan, or the labels that they say count."""
    SEEN = 4
    """The switches and the adapters themselves say who is plugged in where."""


@dataclass(frozen=True, slots=True)
class SourceReport:
    """``tiers[0]`` gives each node its domain at the tier nearest to it, the others follow
    outwards; a node that the source knows nothing of at a tier is left out there. A domain's name
    is the source's own, unique within its tier, and every domain lies in one of the next tier.
    ``names`` are what the source calls its tiers, or empty where it has no names for them.
    ``capacity`` is how many bytes a second all its cables carry, where it knows of cables: of two
    networks the larger one counts. ``leaving`` has of each tier the domains of which is known how
    many of their nodes can send out of them at once, each as fast as all of its adapters go; it is
    empty where the source knows nothing of that.

    ``islands`` are domains of device links (NVLink, XGMI, HCCS) that reach beyond one node.
    ``times`` has when it learned of a node, as seconds since 1970, where it says so.
    ``strange`` are what the source shows and nobody can use, each told as a sentence.
    """

    source: str
    basis: Provenance
    tiers: tuple[Mapping[str, str], ...] = ()
    islands: Mapping[str, str] = field(default_factory=dict)
    strange: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    capacity: int = 0
    leaving: tuple[Mapping[str, float], ...] = ()
    times: Mapping[str, int] = field(default_factory=dict)

    def name(self, tier: int) -> str:
        """What a tier is called."""
        return self.names[tier] if self.names else f"{self.source} tier {tier + 1}"

    @property
    def nodes(self) -> frozenset[str]:
        """All nodes that the source knows of."""
        return frozenset().union(*self.tiers, self.islands)
