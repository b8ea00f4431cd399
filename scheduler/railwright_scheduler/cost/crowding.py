"""What sharing links costs: how much longer a collective takes for where its nodes stand.

What leaves a domain goes through its switches' uplinks, of which there may be fewer than adapters
below them. All groups of a communicator send at the same time; a domain's uplinks carry what any
of them sends across its border. Where they are busy for longer than the busiest adapters are, all
is slower by as much: the bottleneck decides, as in a fluid model of a network that spreads flows
evenly over parallel links (max-min fair; Bertsekas and Gallager, Data Networks, 1992, 6.5.2).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from railwright_scheduler.mapping.problem import Exchanges, Indices, Weights


@dataclass(frozen=True, slots=True, eq=False)
class Uplinks:
    """One tier of the network: ``domains`` is that of each node, and ``room`` how many nodes may
    send out of each domain at once, each as fast as its adapters go; ``oversubscription`` how many
    there are for each of those."""

    domains: Indices
    room: Weights
    oversubscription: float

    def of(self, nodes: Indices) -> Uplinks:
        """The same of these nodes, one for each rank."""
        return replace(self, domains=self.domains[nodes])


def crowding(exchanges: Exchanges, tiers: tuple[Uplinks, ...]) -> float:
    """How many times longer it takes for uplinks than it would for adapters alone; at least 1."""
    busiest = adapters(exchanges)
    if not busiest:
        return 1.0
    return max([1.0, *(_busiest(exchanges, each) / busiest for each in tiers)])


def adapters(exchanges: Exchanges) -> float:
    """Bytes that the busiest node's adapters send and get."""
    return float(_load(exchanges.a, exchanges.b, exchanges.weight).max(initial=0.0))


def crossing(exchanges: Exchanges, domains: Indices) -> float:
    """Bytes that cross the borders of domains, in both directions."""
    return float(exchanges.weight[domains[exchanges.a] != domains[exchanges.b]].sum())


def uplinks(exchanges: Exchanges, tier: Uplinks) -> Weights:
    """Bytes that cross the border of each domain, up to the last that any do of."""
    one, other = tier.domains[exchanges.a], tier.domains[exchanges.b]
    apart = one != other
    return _load(one[apart], other[apart], exchanges.weight[apart])


def _busiest(exchanges: Exchanges, tier: Uplinks) -> float:
    load = uplinks(exchanges, tier)
    return float((load / tier.room[: len(load)]).max(initial=0.0))


def _load(one: Indices, other: Indices, weight: Weights) -> Weights:
    """What each end sends and gets."""
    count = 1 + max(int(one.max(initial=-1)), int(other.max(initial=-1)))
    load = np.bincount(one, weight, count) + np.bincount(other, weight, count)
    return load.astype(np.float64)
