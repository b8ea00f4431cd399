"""Link contention: how much longer a collective takes on links that nodes and jobs share.

Traffic out of a domain uses the uplinks of its switches, which may be fewer than the adapters
below. All groups of a communicator send at the same time; a domain's uplinks carry the traffic of
all of them across its border. If the uplinks are busy for longer than the busiest adapters, the
collective is slower by that factor: the bottleneck decides, as in a fluid model of a network that
spreads flows evenly over parallel links (max-min fair; Bertsekas and Gallager, Data Networks, 1992,
6.5.2).

Beside other jobs the same rule holds, with each job weighted by its adapters below, as switches
serve their ports in turn. Another job takes its average traffic, but no more than its fair share;
the evaluated job gets the remaining bandwidth, and at least its own fair share.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from railwright_scheduler.arrays import Floats, Ints
from railwright_scheduler.communication.traffic_matrix import TrafficMatrix


@dataclass(frozen=True, slots=True, eq=False)
class Uplinks:
    """One tier of the network. ``domains`` has that of each node, ``capacity`` how many nodes may
    send out of each domain at once, each as fast as its adapters go, and ``oversubscription`` how
    many nodes there are for each of those."""

    domains: Ints
    capacity: Floats
    oversubscription: float

    def of(self, nodes: Ints) -> Uplinks:
        """The same of these nodes, one for each rank."""
        return replace(self, domains=self.domains[nodes])


def contention(matrix: TrafficMatrix, tiers: tuple[Uplinks, ...]) -> float:
    """How many times longer it takes for uplinks than it would for adapters alone; at least 1."""
    busiest = adapters(matrix)
    if not busiest:
        return 1.0
    loads = (uplinks(matrix, each) / each.capacity for each in tiers)
    return max([1.0, *(float(load.max(initial=0.0)) / busiest for load in loads)])


def adapters(matrix: TrafficMatrix) -> float:
    """Bytes that the busiest node's adapters send and get."""
    return float(_load(matrix.a, matrix.b, matrix.weight, matrix.ranks).max(initial=0.0))


def crossing(matrix: TrafficMatrix, domains: Ints) -> float:
    """Bytes that cross the borders of domains, in both directions."""
    return float(matrix.weight[domains[matrix.a] != domains[matrix.b]].sum())


def uplinks(matrix: TrafficMatrix, tier: Uplinks) -> Floats:
    """Bytes that cross the border of each domain."""
    one, other = tier.domains[matrix.a], tier.domains[matrix.b]
    apart = one != other
    return _load(one[apart], other[apart], matrix.weight[apart], len(tier.capacity))


def _load(one: Ints, other: Ints, weight: Floats, count: int) -> Floats:
    """The traffic of each of so many ends, in each direction."""
    load = np.bincount(one, weight, count) + np.bincount(other, weight, count)
    return load.astype(np.float64)


@dataclass(frozen=True, slots=True)
class UplinkUse:
    """What one job makes of a domain's uplinks, both in adapters of whole nodes: it has
    ``adapters`` below, and ``busy`` of them would be busy all the time with what it sends."""

    busy: float
    adapters: float


def left(capacity: float, adapters: float, others: Iterable[UplinkUse]) -> float:
    """How many adapters' worth of the ``capacity`` a job with so many below has beside these.

    All of it where there are no others, exactly. The order of ``others`` does not matter.
    """
    meekest_first = sorted(others, key=_eagerness)
    takers = [
        *itertools.accumulate((each.adapters for each in meekest_first[::-1]), initial=adapters)
    ]
    for each in meekest_first:
        if each.busy * takers[-1] >= capacity * each.adapters:
            break
        capacity -= each.busy
        takers.pop()
    return capacity * (adapters / takers[-1])


def _eagerness(use: UplinkUse) -> tuple[float, float]:
    return use.busy / use.adapters, use.adapters
