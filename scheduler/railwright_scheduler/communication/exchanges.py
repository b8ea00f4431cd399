"""What the nodes of a job send each other in a step, whichever machines they are.

Node rank ``n`` has the ranks from ``n * per_node`` on, as torchrun numbers them. A pair of nodes is
given what crosses between them in both directions; as much goes one way as the other: rings send on
what they get, what is asked of experts and servers comes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from railwright_scheduler.budget import CALL, ELEMENT, SORTED, UNLIMITED, WorkBudget
from railwright_scheduler.communication import grid
from railwright_scheduler.communication.graph import Collective, Communicator, Traffic
from railwright_scheduler.communication.grid import Grid
from railwright_scheduler.mapping.problem import Exchanges, Indices, Weights

Pairs = tuple[Indices, Indices, Weights]

CLIQUE_MAX = 512
"""Nodes of a group; of a larger one some pairs stand for all of them, which are too many."""

SAMPLED = 64
"""Others that each node of such a group is taken to exchange with, each way around."""

PAIR = SORTED + 6 * ELEMENT
"""Work for each pair of nodes, all of which are then put in order."""

_ALONE = (Collective.COPY, Collective.LOAD, Collective.STORE)
_TO_ALL = (Collective.ALL_TO_ALL, Collective.DISPATCH)
_SERVED = (Collective.PUSH, Collective.PULL)


def between_nodes(
    communicator: Communicator, per_node: int, work: WorkBudget = UNLIMITED
) -> Exchanges:
    """Bytes that each two node ranks exchange in a step, for one communicator."""
    rows = communicator.grid.ranks // communicator.ranks
    work.spend(CALL + 3 * ELEMENT * communicator.grid.ranks + 2 * SORTED * rows)
    groups = communicator.grid.groups(*communicator.axes) // per_node
    nodes, alike = grid.unlike(groups)
    pairs = [
        (a, b, weight * np.broadcast_to(alike[:, np.newaxis], a.shape))
        for traffic in communicator.traffic
        if traffic.collective not in _ALONE
        for a, b, weight in _pairs(traffic, nodes, work)
    ]
    return _summed(pairs, shape(communicator.grid, per_node))


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
    parts: Iterable[Exchanges], shape: tuple[int, ...], work: WorkBudget = UNLIMITED
) -> Exchanges:
    """All of these at once, of nodes that are numbered like this."""
    pairs = [(each.a, each.b, each.weight) for each in parts]
    work.spend(5 * CALL + 2 * SORTED * sum(len(weight) for _, _, weight in pairs))
    return _summed(pairs, shape)


def shape(ranks: Grid, per_node: int) -> tuple[int, ...]:
    """The grid of node ranks: that of ranks without what a node holds of its fastest axes. One line
    where nodes do not hold whole boxes of the grid."""
    left, sizes = per_node, []
    for _, size in ranks.axes:
        inside = int(np.gcd(left, size))
        if inside != min(left, size):
            return (-(-ranks.ranks // per_node),)
        sizes.append(size // inside)
        left //= inside
    return tuple(sizes) if left == 1 else (-(-ranks.ranks // per_node),)


def _pairs(traffic: Traffic, nodes: Indices, work: WorkBudget) -> Iterator[Pairs]:
    """``nodes`` has a row for each group: the node of each of its ranks, ascending."""
    ranks = nodes.shape[1]
    work.spend(2 * CALL + 2 * ELEMENT * nodes.size)
    if traffic.collective in _SERVED:
        clients, servers = map(_held, np.split(nodes, [traffic.clients], axis=1))
        size = traffic.count * traffic.size / traffic.servers
        work.spend(PAIR * clients[0].size * servers[0].shape[1])
        yield _product(clients, servers, size)
    elif traffic.collective in _TO_ALL:
        there, count = _held(nodes)
        each = _to_each(traffic, ranks, there.shape[1])
        if there.shape[1] > CLIQUE_MAX:
            work.spend(PAIR * there.size * SAMPLED)
            yield from _sampled(there, count, each)
        else:
            # Each pair of nodes stands in the product twice, once for each direction.
            work.spend(PAIR * there.size * there.shape[1])
            yield _product((there, count), (there, count), each)
    elif ranks > 1:
        work.spend(5 * CALL + 2 * PAIR * nodes.size)
        sent = np.float64(traffic.sent(ranks))
        yield nodes[:, :-1], nodes[:, 1:], np.broadcast_to(sent, (len(nodes), ranks - 1))
        if traffic.collective is not Collective.SEND:
            yield nodes[:, -1:], nodes[:, :1], np.broadcast_to(sent, (len(nodes), 1))


def _held(nodes: Indices) -> tuple[Indices, Weights]:
    """The nodes of each group, and how many of its ranks each of them has; rows that have fewer
    nodes are filled up with their first and none of the ranks."""
    rows, ranks = nodes.shape
    row, at = np.nonzero(np.diff(nodes, axis=1, prepend=-1))
    place = np.arange(len(row)) - np.searchsorted(row, np.arange(rows))[row]
    there = np.repeat(nodes[:, :1], int(place.max()) + 1, axis=1)
    count = np.zeros(there.shape)
    there[row, place] = nodes[row, at]
    count[row, place] = np.diff(np.append(row * ranks + at, rows * ranks))
    return there, count


def _sampled(there: Indices, count: Weights, each: float) -> Iterator[Pairs]:
    """As much for each node as with all others of its group, with some of them all around."""
    nodes = there.shape[1]
    total = count.sum(axis=1, keepdims=True)
    strides = np.unique(np.linspace(1, (nodes - 1) // 2, SAMPLED).astype(np.int64))
    for stride in strides.tolist():
        yield there, np.roll(there, -stride, axis=1), each * count * (total - count) / len(strides)


def _product(one: tuple[Indices, Weights], other: tuple[Indices, Weights], each: float) -> Pairs:
    """All of one's ranks with all of the other's."""
    (a, some), (b, others) = one, other
    weight = each * some[:, :, np.newaxis] * others[:, np.newaxis, :]
    shape = weight.shape
    flat = len(a), -1
    return (
        np.broadcast_to(a[:, :, np.newaxis], shape).reshape(flat),
        np.broadcast_to(b[:, np.newaxis, :], shape).reshape(flat),
        weight.reshape(flat),
    )


def _to_each(traffic: Traffic, ranks: int, nodes: int) -> float:
    """Bytes that one rank sends, for each rank of the group."""
    if traffic.routing is None:
        return traffic.count * traffic.size / ranks
    # A token crosses once to each node that has an expert of it, whose ranks pass it on.
    reached, _ = traffic.routing.reached(nodes, ranks // nodes)
    return traffic.count * traffic.size * reached / ranks


def _summed(pairs: list[Pairs], shape: tuple[int, ...]) -> Exchanges:
    """Pairs of one node with itself are left out, and those of two put together."""
    if not pairs:
        nobody = np.zeros(0, dtype=np.int64)
        return Exchanges(shape, nobody, nobody, np.zeros(0))
    a, b, weight = (np.concatenate([*map(np.ravel, parts)]) for parts in zip(*pairs, strict=True))
    count = int(np.prod(shape))
    apart = (a != b) & (weight > 0)
    keys, at = np.unique(
        np.minimum(a, b)[apart] * count + np.maximum(a, b)[apart], return_inverse=True
    )
    total = np.bincount(at, weight[apart], len(keys)).astype(np.float64)
    return Exchanges(shape, keys // count, keys % count, total)
