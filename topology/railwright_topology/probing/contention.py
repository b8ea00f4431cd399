"""Measure how many nodes can send out of a domain at once: each sends to a node outside.

A single pair shows the speed of a path, and not how many nodes share it. The sum that all nodes of
a domain reach, over what one pair reaches inside, is the capacity of the uplinks in nodes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from railwright_topology.grouping import group
from railwright_topology.probing.findings import Findings

Pair = tuple[str, str]

CONTENTION_S = 3.0
"""Seconds; long, as the first senders have the links to themselves until others start."""

SATURATED = 0.8
"""If only some nodes of a domain have a partner outside, and they reach more than this share of
their full speed, the capacity for all nodes is unknown."""


@dataclass(frozen=True, slots=True)
class ContentionProbe:
    """The nodes of one domain of a tier, each with its partner outside; ``alone`` is a pair within
    one nearest domain, for reference."""

    tier: int
    domain: str
    nodes: int
    pairs: tuple[Pair, ...]
    alone: Pair

    def leaving(self, bandwidths: Sequence[float | None], alone: float | None) -> float | None:
        """The uplink capacity in nodes, from the bytes a second of each pair; None if probes failed
        or too few nodes took part."""
        reached = [bandwidth for bandwidth in bandwidths if bandwidth is not None]
        if len(reached) < len(self.pairs) or not alone:
            return None
        worth = sum(reached) / alone
        if len(self.pairs) < self.nodes and worth > SATURATED * len(self.pairs):
            return None
        return min(worth, float(self.nodes))


def probes(found: Findings) -> Iterator[ContentionProbe]:
    """One probe for each domain with several nodes and any node outside. Partners within the same
    domain of the next tier come first, as farther ones use other links too."""
    for tier, grouping in enumerate(found.tiers):
        around = found.tiers[tier + 1] if tier + 1 < len(found.tiers) else {}
        for domain in sorted({*grouping.values()}):
            members = sorted(node for node, its in grouping.items() if its == domain)
            beside = {around.get(node) for node in members}
            outside = [node for node, its in grouping.items() if its != domain]
            near = [node for node in outside if around.get(node) in beside]
            far = [node for node in outside if around.get(node) not in beside]
            pairs = zip(members, _spread(near, found) + _spread(far, found), strict=False)
            if len(taken := tuple(pairs)) > 1 and (alone := _beside(members, found)):
                yield ContentionProbe(tier, domain, len(members), taken, alone)


def _beside(members: Iterable[str], found: Findings) -> Pair | None:
    """A pair of these nodes in one nearest domain."""
    domains = group((found.tiers[0].get(node, node), node) for node in members)
    return next(((its[0], its[1]) for its in domains.values() if len(its) > 1), None)


def _spread(nodes: Iterable[str], found: Findings) -> list[str]:
    """Order nodes so that those of one nearest domain are spread over the list."""
    domains = group((found.tiers[0].get(node, node), node) for node in sorted(nodes))
    rows = itertools.zip_longest(*domains.values())
    return [node for row in rows for node in row if node is not None]
