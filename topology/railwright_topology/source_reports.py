"""The domains of nodes as one source reports them, before `topology_merge` compares the sources.

Sources count tiers in both directions and name one switch differently, so two of them are compared
by which nodes they group, from the nearest tier outwards.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

SCALE_UP = "scale-up-domain"
"""Name of the level of device links (NVLink, XGMI, HCCS), whatever sources call it."""


class Provenance(enum.IntEnum):
    """How a source got its information, the most trusted last."""

    MEASURED = 1
    """Derived from probes between nodes. A busy host or a slow cable misleads them, and they have
    no names. They count where no other source has a node, and elsewhere they show conflicts."""
    IMPORTED = 2
    """Read from labels and files that other tools wrote."""
    DECLARED = 3
    """Declared by the administrators of the site: a plan, or configured labels."""
    SEEN = 4
    """Observed by switches and adapters themselves."""


@dataclass(frozen=True, slots=True)
class SourceReport:
    """``tiers[0]`` has the domain of each node at the nearest tier, the others follow outwards; a
    tier leaves out nodes without a domain. A domain's name is the source's own, unique within its
    tier, and every domain lies in one domain of the next tier. ``names`` are the source's names of
    its tiers, empty if it has none. ``capacity`` are the bytes a second that all its cables carry,
    0 without cables: of two networks the larger one counts. ``leaving`` has, for each tier, how
    many nodes of a domain can send out of it at once, each at the full speed of its adapters, where
    that is known; it is empty if nothing is known of any tier.

    ``scale_up_domains`` are domains of device links (NVLink, XGMI, HCCS) that reach beyond one
    node. ``times`` has when a node was measured, in seconds since 1970, where known. ``strange``
    are sentences on what the source has and what cannot be used.
    """

    source: str
    provenance: Provenance
    tiers: tuple[Mapping[str, str], ...] = ()
    scale_up_domains: Mapping[str, str] = field(default_factory=dict)
    strange: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    capacity: int = 0
    leaving: tuple[Mapping[str, float], ...] = ()
    times: Mapping[str, int] = field(default_factory=dict)

    def name(self, tier: int) -> str:
        """Name of a tier; its number if the source has no names."""
        return self.names[tier] if self.names else f"{self.source} tier {tier + 1}"

    @property
    def order(self) -> tuple[int, int, str]:
        """Key that sorts the most trusted source first."""
        return -self.provenance, -self.capacity, self.source

    @property
    def nodes(self) -> frozenset[str]:
        """All nodes in the report."""
        return frozenset().union(*self.tiers, self.scale_up_domains)
