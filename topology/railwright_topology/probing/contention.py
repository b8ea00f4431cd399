"""How many nodes can send out of a domain at once: all of them do, each to another one outside.

One pair at a time shows how fast a path is, and not how many share it. What all of a domain's nodes
reach together, over what one of them reaches inside, is how many of them its uplinks let out.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from railwright_topology.grouping import group
from railwright_topology.probing.findings import Findings

Pair = tuple[str, str]

CONTENTION_S = 3.0
"""Long, as those that begin first have the links to themselves until the others are there."""

SATURATED = 0.8
"""Where only some of a domain's nodes found one outside to send to, and reach more than this part
of what they could, it is not known what all would."""


@dataclass(frozen=True, slots=True)
class ContentionProbe:
    """The nodes of one domain of a tier, each with the one outside that it sends to; ``alone`` are
    two that nothing is between."""

    tier: int
    domain: str
    nodes: int
    pairs: tuple[Pair, ...]
    alone: Pair

    def leaving(self, bandwidths: Sequence[float | None], alone: float | None) -> float | None:
        """How many nodes' worth left, of what each pair reached in bytes a second; None where that
        says nothing of the uplinks: probes failed, or too few of the nodes could take part."""
        reached = [bandwidth for bandwidth in bandwidths if bandwidth is not None]
        if len(reached) < len(self.pairs) or not alone:
            return None
        worth = sum(reached) / alone
        if len(self.pairs) < self.nodes and worth > SATURATED * len(self.pairs):
            return None
        return min(worth, float(self.nodes))


def probes(found: Findings) -> Iterator[ContentionProbe]:
    """One for each domain that has more than one node and any outside. Those within the same domain
    of the next tier are sent to first: the links beyond it are other ones."""
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
    """Two of these of one nearest domain."""
    domains = group((found.tiers[0].get(node, node), node) for node in members)
    return next(((its[0], its[1]) for its in domains.values() if len(its) > 1), None)


def _spread(nodes: Iterable[str], found: Findings) -> list[str]:
    """Those of one nearest domain as far apart as can be: it takes in no more than it lets out."""
    domains = group((found.tiers[0].get(node, node), node) for node in sorted(nodes))
    rows = itertools.zip_longest(*domains.values())
    return [node for row in rows for node in row if node is not None]
