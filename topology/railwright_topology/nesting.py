"""Make tiers nest: every domain lies within one domain of the next tier.

Sources agree on racks and differ on the block of a rack, or have a node in the rack of some nodes
and the block of others. A link between a rack and a block is as trusted as the less trusted of the
two locations of a node. The most trusted links of a rack decide, then their number. Of a node that
is elsewhere, the less trusted location is changed. `topology_merge` calls it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from railwright_topology.grouping import group

NodeLocations = dict[str, tuple[str, int]]
"""The domain of each node at a tier, and the source's rank in trust, 0 the most trusted."""


Reasons = dict[str, int]
"""Of each node that was moved or removed: the rank of the source that decided it."""


def settle(tiers: Sequence[NodeLocations]) -> list[Reasons]:
    """Change locations until tiers nest, from the nearest outwards; return the reasons by tier."""
    reasons: list[Reasons] = [{} for _ in tiers]
    for place, inner in enumerate(tiers):
        domains = group((domain, node) for node, (domain, _) in sorted(inner.items()))
        for _, nodes in sorted(domains.items()):
            outwards = range(place + 1, len(tiers))
            knowing = (at for at in outwards if any(node in tiers[at] for node in nodes))
            if (found := next(knowing, None)) is not None:
                _gather(nodes, place, found, tiers=tiers, reasons=reasons)
    return reasons


def _gather(
    nodes: Iterable[str],
    place: int,
    beyond: int,
    *,
    tiers: Sequence[NodeLocations],
    reasons: Sequence[Reasons],
) -> None:
    """Move the nodes of one domain at ``place`` into one domain of the tier ``beyond``."""
    inner, outer = tiers[place], tiers[beyond]
    placed = group(
        (outer[node][0], max(outer[node][1], inner[node][1])) for node in nodes if node in outer
    )
    links = {around: Counter(trusts) for around, trusts in placed.items()}
    chosen = _best(links)
    best = min(links[chosen])
    for node in nodes:
        if node in outer and outer[node][0] == chosen:
            continue
        trust = min(tier[node][1] for tier in tiers[: place + 1] if node in tier)
        if node not in outer:
            outer[node] = chosen, max(best, trust)
        elif trust <= outer[node][1]:
            outer[node], reasons[beyond][node] = (chosen, max(best, trust)), trust
        else:
            for tier, its in zip(tiers[: place + 1], reasons, strict=False):
                if tier.pop(node, None):
                    its[node] = outer[node][1]


def _best(links: Mapping[str, Counter[int]]) -> str:
    """The domain with the most of the best links; of equal ones the first by name."""
    trusts = sorted({trust for counts in links.values() for trust in counts})
    return min(links, key=lambda around: ([-links[around][trust] for trust in trusts], around))
