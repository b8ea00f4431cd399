"""What decisions need of the network: the domains of nodes, and the links between them. `fabric`
derives it from all sources, and the Fabric object has it."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from railwright_topology.links import Links
from railwright_topology.source_reports import SCALE_UP

UNKNOWN = ""


@dataclass(frozen=True, slots=True)
class Interconnect:
    """``levels`` runs from the coarsest to the finest, and so do each node's domains in ``places``;
    a domain's name is unique within its level, and UNKNOWN if no source gives one. ``links`` are
    the links of each level; oversubscription never decreases outwards."""

    levels: tuple[str, ...] = ()
    places: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    links: tuple[Links, ...] = ()

    @property
    def nearest(self) -> int:
        """The finest level of the network, without scale-up domains; -1 if there is none."""
        found = [level for level, name in enumerate(self.levels) if name != SCALE_UP]
        return max(found, default=-1)

    def place(self, node: str) -> tuple[str, ...]:
        """The node's domain at each level; UNKNOWN at all levels for a node without a source."""
        return self.places.get(node) or (UNKNOWN,) * len(self.levels)

    def sizes(self, nodes: Iterable[str], level: int) -> collections.Counter[str]:
        """How many of these nodes are in each known domain of a level."""
        domains = (self.place(node)[level] for node in nodes)
        return collections.Counter(domain for domain in domains if domain != UNKNOWN)
