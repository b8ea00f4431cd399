"""The traffic between the nodes of a job in a step, as a sparse matrix.

Node rank ``n`` has the ranks from ``n * per_node`` on, as torchrun numbers them. The value of a
pair of nodes is its traffic in both directions, which are equal: rings forward what they receive,
and requests to experts have responses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from railwright_scheduler.arrays import Floats, Ints
from railwright_scheduler.budget import CALL, ELEMENT, SORTED, UNLIMITED, WorkBudget
from railwright_scheduler.communication import grid
from railwright_scheduler.communication.graph import Collective, Communicator, Transfer
from railwright_scheduler.communication.grid import Grid

Pairs = tuple[Ints, Ints, Floats]

FEW, MANY = 16, 64
"""Pairs for each rank, and for one of them: what axes that are rings, chains and small cliques
bring."""

CLIQUE_MAX = 512
"""Nodes of a group. In a larger one some pairs represent all of them."""

SAMPLED = 64
"""Others that each node of such a group is taken to exchange with, each way around."""

PAIR = SORTED + 6 * ELEMENT
"""Work for each pair of nodes, all of which are then put in order."""

_ALONE = (
    Collective.COPY,
    Collective.LOAD,
    Collective.STORE,
    Collective.PUSH,
    Collective.PULL,
)
"""Collectives that are no traffic between ranks."""
_TO_ALL = (Collective.ALL_TO_ALL, Collective.DISPATCH)


@dataclass(frozen=True, slots=True, eq=False)
class NeighbourTable:
    """The ranks that each rank exchanges with, as rows of equal length. Row ``r`` of ``of`` has
    those of rank ``r``, ``weight`` how much it exchanges with each; behind the ``count[r]`` of them
    it is filled up with a number behind all ranks, and zeros."""

    of: Ints
    weight: Floats
    count: Ints


@dataclass(frozen=True, slots=True, eq=False)
class TrafficMatrix:
    """Pair ``i`` is ``a[i]`` and ``b[i]``, which exchange ``weight[i]``; no pair occurs twice.

    ``shape`` is how ranks are numbered: the sizes of their grid's axes, the fastest first. Ranks
    of which nothing is known have one axis.
    """

    shape: tuple[int, ...]
    a: Ints
    b: Ints
    weight: Floats

    @classmethod
    def of_pairs(cls, shape: tuple[int, ...], pairs: Iterable[Pairs]) -> TrafficMatrix:
        """Sum up what each two exchange, without what one exchanges with itself."""
        flat = [[*map(np.ravel, parts)] for parts in zip(*pairs, strict=True)]
        if not flat:
            nobody = np.zeros(0, dtype=np.int64)
            return cls(shape, nobody, nobody, np.zeros(0))
        a, b, weight = map(np.concatenate, flat)
        count = int(np.prod(shape))
        apart = (a != b) & (weight > 0)
        low, high = np.minimum(a, b)[apart], np.maximum(a, b)[apart]
        keys, at = np.unique(low * count + high, return_inverse=True)
        total = np.bincount(at, weight[apart], len(keys)).astype(np.float64)
        return cls(shape, keys // count, keys % count, total)

    @property
    def ranks(self) -> int:
        """How many there are."""
        return int(np.prod(self.shape))

    @property
    def heft(self) -> int:
        """The factor of work to evaluate a mapping, compared with ranks that send to a few
        others."""
        return max(1, len(self.weight) // (FEW * self.ranks), self.table // (MANY * self.ranks))

    @property
    def table(self) -> int:
        """Ranks times those that one of them exchanges with at most."""
        ends = np.bincount(self.a, minlength=1).max() + np.bincount(self.b, minlength=1).max()
        return self.ranks * int(ends)

    def merged(self, group: Ints, shape: tuple[int, ...]) -> TrafficMatrix:
        """The traffic between groups: ``group`` is that of each rank, ``shape`` the groups'."""
        return TrafficMatrix.of_pairs(shape, [(group[self.a], group[self.b], self.weight)])

    def neighbours(self, *, rows: int) -> NeighbourTable:
        """Those of each rank. Rows from the number of ranks on exchange nothing."""
        ends = np.concatenate([self.a, self.b])
        fars = np.concatenate([self.b, self.a])
        weights = np.concatenate([self.weight, self.weight])
        order = np.argsort(ends, kind="stable")
        count = np.bincount(ends, minlength=rows)
        first = np.cumsum(count) - count
        column = np.arange(len(ends)) - first[ends[order]]
        width = max(1, int(count.max(initial=0)))
        found = np.full((rows, width), rows)
        weight = np.zeros((rows, width))
        found[ends[order], column] = fars[order]
        weight[ends[order], column] = weights[order]
        return NeighbourTable(found, weight, count)


def between_nodes(
    communicator: Communicator, per_node: int, work: WorkBudget = UNLIMITED
) -> TrafficMatrix:
    """Bytes that each two node ranks exchange in a step, for one communicator."""
    rows = communicator.grid.ranks // communicator.ranks
    work.spend(CALL + 3 * ELEMENT * communicator.grid.ranks + 2 * SORTED * rows)
    groups = communicator.grid.groups(*communicator.axes) // per_node
    nodes, times = grid.distinct_rows(groups)
    pairs = [
        (a, b, weight * np.broadcast_to(times[:, np.newaxis], a.shape))
        for traffic in communicator.traffic
        if traffic.collective not in _ALONE
        for a, b, weight in _pairs(traffic, nodes, work)
    ]
    return TrafficMatrix.of_pairs(shape(communicator.grid, per_node), pairs)


def is_even(communicator: Communicator, per_node: int) -> bool:
    """Whether each node exchanges as much with every other: then it is all one where they are."""
    groups = communicator.grid.groups(*communicator.axes) // per_node
    _, held = np.unique(groups[0], return_counts=True)
    return (
        all(traffic.collective in _TO_ALL for traffic in communicator.traffic)
        and len(held) * per_node == communicator.grid.ranks
        and bool((groups == groups[0]).all())
        and int(np.ptp(held)) == 0
    )


def together(
    parts: Iterable[TrafficMatrix], shape: tuple[int, ...], work: WorkBudget = UNLIMITED
) -> TrafficMatrix:
    """All of these at once, of nodes that are numbered like this."""
    pairs = [(each.a, each.b, each.weight) for each in parts]
    work.spend(5 * CALL + 2 * SORTED * sum(len(weight) for _, _, weight in pairs))
    return TrafficMatrix.of_pairs(shape, pairs)


def shape(ranks: Grid, per_node: int) -> tuple[int, ...]:
    """The grid of node ranks: that of ranks without what a node holds of its fastest axes. One line
    where nodes do not hold whole boxes of the grid."""
    left, sizes = per_node, []
    for _, size in ranks.axes:
        shared = int(np.gcd(left, size))
        if shared != min(left, size):
            return (-(-ranks.ranks // per_node),)
        sizes.append(size // shared)
        left //= shared
    return tuple(sizes) if left == 1 else (-(-ranks.ranks // per_node),)


def _pairs(traffic: Transfer, nodes: Ints, work: WorkBudget) -> Iterator[Pairs]:
    """``nodes`` has a row for each group: the node of each of its ranks, ascending."""
    ranks = nodes.shape[1]
    work.spend(2 * CALL + 2 * ELEMENT * nodes.size)
    if traffic.collective in _TO_ALL:
        there, count = ranks_on_nodes(nodes)
        each = _to_each(traffic, ranks, there.shape[1])
        if there.shape[1] > CLIQUE_MAX:
            work.spend(PAIR * there.size * SAMPLED)
            yield from _sampled(there, count, each)
        else:
            # The product has each pair of nodes twice, once for each direction.
            work.spend(PAIR * there.size * there.shape[1])
            yield _product(there, count, each)
    elif ranks > 1:
        work.spend(5 * CALL + 2 * PAIR * nodes.size)
        sent = np.float64(traffic.sent(ranks))
        yield nodes[:, :-1], nodes[:, 1:], np.broadcast_to(sent, (len(nodes), ranks - 1))
        if traffic.collective is not Collective.SEND:
            yield nodes[:, -1:], nodes[:, :1], np.broadcast_to(sent, (len(nodes), 1))


def ranks_on_nodes(nodes: Ints) -> tuple[Ints, Floats]:
    """The nodes of each group, and how many of its ranks each of them has; ``nodes`` has a row for
    each group, ascending. Rows of fewer nodes are filled up with their first and no ranks."""
    rows, ranks = nodes.shape
    row, at = np.nonzero(np.diff(nodes, axis=1, prepend=-1))
    place = np.arange(len(row)) - np.searchsorted(row, np.arange(rows))[row]
    there = np.repeat(nodes[:, :1], int(place.max()) + 1, axis=1)
    count = np.zeros(there.shape)
    there[row, place] = nodes[row, at]
    count[row, place] = np.diff(np.append(row * ranks + at, rows * ranks))
    return there, count


def _sampled(there: Ints, count: Floats, each: float) -> Iterator[Pairs]:
    """As much for each node as with all others of its group, with some of them all around."""
    nodes = there.shape[1]
    total = count.sum(axis=1, keepdims=True)
    strides = np.unique(np.linspace(1, (nodes - 1) // 2, SAMPLED).astype(np.int64))
    for stride in strides.tolist():
        yield there, np.roll(there, -stride, axis=1), each * count * (total - count) / len(strides)


def _product(there: Ints, count: Floats, each: float) -> Pairs:
    """All ranks of each group with all of them."""
    weight = each * count[:, :, np.newaxis] * count[:, np.newaxis, :]
    nodes = there.shape[1]
    return np.repeat(there, nodes, axis=1), np.tile(there, nodes), weight.reshape(len(there), -1)


def _to_each(traffic: Transfer, ranks: int, nodes: int) -> float:
    """Bytes that one rank sends, for each rank of the group."""
    if traffic.routing is None:
        return traffic.count * traffic.size / ranks
    # A token crosses once to each node that has an expert of it, whose ranks pass it on.
    reached, _ = traffic.routing.reached(nodes, ranks // nodes)
    return traffic.count * traffic.size * reached / ranks
