"""The nodes of a snapshot as arrays, so that a question about all nodes is a few numpy calls.

Nodes are put in topology order (domain by domain, then by name), which makes every domain of every
level one contiguous range, and every answer the same for any order of the input.
"""

from __future__ import annotations

import collections
import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from railwright_scheduler.arrays import Floats, Ints, Mask
from railwright_scheduler.cost.contention import Uplinks
from railwright_scheduler.model import scale_up_domains
from railwright_scheduler.model.snapshot import Amounts, Node, Snapshot, Unavailable
from railwright_scheduler.placement import domains
from railwright_scheduler.placement.constraints import ResolvedConstraints
from railwright_scheduler.placement.domains import Domains
from railwright_topology.links import Links
from railwright_topology.relative_speed import EVEN, RelativeSpeed

NODE_AMOUNT_MAX = 2**52
"""Of what a node has or holds of a resource. No pod that requests more than it fits."""

_CAPACITY_SCALE = 2**10  # NODE_AMOUNT_MAX * _CAPACITY_SCALE stays inside int64

COMMON_MAX = 64
"""The number of resources, of those that most nodes have, by which the usage of a node is compared.
Drivers may define a resource for each node; a matrix of all of them would take gigabytes."""

_COMBINED_MAX, _CHANGES_MAX = 2, 8
"""For so many roles placed before another, the nodes that hold a pod of each are cached; after more
changes they are computed again for all nodes, as that takes less time."""

REASONS = {reason: number for number, reason in enumerate((None, *Unavailable))}

SLOWDOWN_DEGREES = 32
"""Degrees of slowdown; the last is of a node that does nothing."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The constant data of the nodes during a decision.

    ``rows`` gives each resource its row in ``allocatable`` and ``free`` (shape resources x nodes),
    if it is one of the first ``common`` ones, which most nodes have, or one that a job requests.
    ``uplinks`` are those of each level, the coarsest first, and ``placed`` are the nodes with a
    domain of that level or in a scale-up domain. ``reducing`` is whether the switches of each
    level's domains reduce in the network. ``slowdown`` has the degrees by which each node is slower
    than most of its kind. ``aligned`` numbers the assignments of adapters to rails: nodes of one
    number have equal assignments and correct cables. It is 0 for nodes with wrong cables and for
    nodes without rail data (``railless``). ``miscabled`` are the wrong rails, each below its node
    (shape 2 x pairs).
    ``unavailable`` is 0 of an available node, else the number of the reason. ``scale_up_level`` is
    the level of scale-up domains in the tree, -1 if there is none.
    """

    nodes: tuple[Node, ...]
    levels: tuple[str, ...]
    scale_up_level: int
    domains: Domains
    rows: dict[str, int]
    common: int
    allocatable: Ints
    free: Ints
    foreign: Ints
    unavailable: Ints
    recently_lost: Mask
    uplinks: tuple[Uplinks, ...]
    reducing: tuple[Mask, ...]
    placed: tuple[Mask, ...]
    slowdown: Ints
    aligned: Ints
    miscabled: Ints
    railless: Mask

    @property
    def available(self) -> Mask:
        """The nodes that take new pods."""
        found: Mask = self.unavailable == 0
        return found

    @property
    def summed(self) -> Mask:
        """The nodes in domains whose switches reduce in the network."""
        found = np.zeros(len(self.nodes), dtype=np.bool_)
        for adds, domain in zip(self.reducing, self.domains.of_node[1:], strict=True):
            found |= adds[domain]
        return found

    def devices(self, nodes: Ints) -> frozenset[str]:
        """The kinds of devices that these nodes (columns) have."""
        return frozenset(self.nodes[column].device for column in nodes.tolist())

    def wide(self, spans: Sequence[int]) -> Floats:
        """For each node how much its domain's uplinks let out, as a share of what those of the
        level's domains do: the least of the levels of which several domains are spanned."""
        found = np.ones(len(self.nodes))
        for tier, spanned in zip(self.uplinks, spans, strict=True):
            if spanned > 1:
                common = np.maximum(1.0, np.bincount(tier.domains) / tier.oversubscription)
                found = np.minimum(found, (tier.capacity / common)[tier.domains])
        return found

    def meant(self, nodes: Mask, limits: ResolvedConstraints) -> Mask:
        """The nodes that meet the constraints: in a known domain where pods must spread, in a
        scale-up domain where one is required, and with the rails aligned as required."""
        for spread in limits.spreads:
            if spread.level:
                nodes = nodes & self.placed[spread.level - 1]
        if limits.scale_up_only:
            nodes = nodes & self.placed[self.scale_up_level - 1]
        return nodes & (self.aligned == limits.rails) if limits.rails else nodes

    def by_rails(self, nodes: Mask) -> Ints:
        """How many of these nodes have their rails aligned in each way, by its number."""
        return np.bincount(self.aligned[nodes], minlength=int(self.aligned.max(initial=0)) + 2)


def of(snapshot: Snapshot) -> Cluster:
    """Lay the snapshot's nodes out as arrays.

    Raises ValueError when two nodes share a name, a node's domains do not match the levels, or an
    amount is negative or above ``NODE_AMOUNT_MAX``.
    """
    nodes = domains.in_topology_order(snapshot.nodes)
    _check(nodes, snapshot.levels)
    tree = domains.of(nodes, len(snapshot.levels))
    links = snapshot.links or (Links(),) * len(snapshot.levels)
    common, requested = _resources(snapshot)
    rows = {name: row for row, name in enumerate([*common, *requested])}
    allocatable = _matrix(rows, [node.allocatable for node in nodes])
    used = _matrix(rows, [node.used for node in nodes])
    return Cluster(
        nodes=nodes,
        levels=snapshot.levels,
        scale_up_level=scale_up_domains.level(snapshot.levels),
        domains=tree,
        rows=rows,
        common=len(common),
        allocatable=allocatable,
        free=allocatable - used,
        foreign=_matrix(rows, [node.foreign for node in nodes]),
        unavailable=np.array([REASONS[node.unavailable] for node in nodes], dtype=np.int64),
        recently_lost=np.array([node.recently_lost for node in nodes], dtype=np.bool_),
        placed=tuple(
            np.array(
                [scale_up_domains.is_known(node.domains[level]) for node in nodes], dtype=np.bool_
            )
            for level in range(len(snapshot.levels))
        ),
        aligned=_aligned(nodes),
        miscabled=_miscabled(nodes),
        railless=np.array([node.rails is None for node in nodes], dtype=np.bool_),
        uplinks=tuple(_uplinks(links, nodes, tree)),
        reducing=tuple(_reducing(links, nodes, tree)),
        slowdown=np.array([_slowdown(node.relative_speed) for node in nodes], dtype=np.int64),
    )


def _resources(snapshot: Snapshot) -> tuple[list[str], list[str]]:
    """The resources that most nodes have, and the others that jobs request; each sorted."""
    carried = collections.Counter(name for node in snapshot.nodes for name in node.allocatable)
    common = sorted(carried, key=lambda name: (-carried[name], name))[:COMMON_MAX]
    requested = {
        name
        for job in (*snapshot.jobs, *snapshot.awaiting_own_pods)
        for role in job.roles
        for name in role.per_pod
    }
    return sorted(common), sorted((requested & carried.keys()) - {*common})


@dataclass(frozen=True, slots=True, eq=False)
class PodRequest:
    """A pod's request: ``need[i, 0]`` of the resource in row ``rows[i]`` of the cluster, for every
    i. Equal requests have equal keys."""

    rows: Ints
    need: Ints
    key: bytes

    @classmethod
    def of(cls, amounts: Sequence[tuple[int, int]] | Ints) -> PodRequest:
        """The request of these amounts, each with its row before it."""
        pairs = np.array(amounts, dtype=np.int64).reshape(-1, 2)
        return cls(pairs[:, 0], pairs[:, 1:], pairs.tobytes())


class Taken(NamedTuple):
    """One pod of this request on each of these ``nodes`` (columns, distinct)."""

    nodes: Ints
    request: PodRequest


class Capacity:
    """What is free and what is reserved, as the jobs of one cycle take and reserve it.

    ``unreserved`` is what is ``free`` minus all reservations, ``reservable`` is the same where all
    pods of jobs had ended. ``free_capacity[n]`` is how much of node n is free over all common
    resources, each as a share of the largest such amount on any node: what best fit compares.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.free = Remaining(cluster.free)
        self.unreserved = Remaining(cluster.free)
        self.reservable = Remaining(cluster.allocatable - cluster.foreign)
        self._common = cluster.common
        most = cluster.allocatable[: self._common].max(axis=1, initial=0)
        self._most = np.maximum(most, 1)[:, np.newaxis]
        self.free_capacity = self._free_capacity_of(cluster.free)

    def reserve(self, nodes: Ints, request: PodRequest) -> None:
        """Reserve capacity for one pod on each of the nodes."""
        self.unreserved.subtract(nodes, request)
        self.reservable.subtract(nodes, request)

    def reserve_each(self, nodes: Ints, rows: Ints, amounts: Ints) -> None:
        """Keep ``amounts[i]`` of the resource in row ``rows[i]`` of node ``nodes[i]``, for every i;
        pairs may repeat. A node of which more is kept than it has holds no other pod."""
        self.unreserved.subtract_each(nodes, rows, amounts)
        self.reservable.subtract_each(nodes, rows, amounts)

    def take(self, nodes: Ints, request: PodRequest) -> None:
        """Let one pod have its request on each of the nodes."""
        self.free.subtract(nodes, request)
        self.unreserved.subtract(nodes, request)
        left = self.free.amounts.take(nodes, axis=1)
        assert (left[request.rows] >= 0).all(), f"over-committed: {left[request.rows].min()} left"
        self.free_capacity[nodes] = self._free_capacity_of(left)

    def _free_capacity_of(self, free: Ints) -> Ints:
        shares: Ints = np.maximum(free[: self._common], 0) * _CAPACITY_SCALE // self._most
        total: Ints = shares.sum(axis=0)
        return total


class Remaining:
    """The remaining amounts of each resource (row) on each node (column). The nodes that satisfy a
    request are cached, and computed again only for changed nodes: most jobs change a few."""

    def __init__(self, amounts: Ints) -> None:
        self.amounts = amounts.copy()
        self._changed: list[Ints] = []
        self._masks: dict[bytes, tuple[int, Mask]] = {}

    @property
    def version(self) -> int:
        """The number of changes so far."""
        return len(self._changed)

    def changed(self, since: int) -> Ints:
        """The nodes (columns) that changed after this earlier version, some of them repeatedly."""
        return np.concatenate(self._changed[since:])

    def subtract(self, nodes: Ints, request: PodRequest) -> None:
        """Take the request of one pod from each of the nodes."""
        self.amounts[request.rows[:, np.newaxis], nodes] -= request.need
        self._changed.append(nodes)

    def subtract_each(self, nodes: Ints, rows: Ints, amounts: Ints) -> None:
        """Take ``amounts[i]`` of the resource in row ``rows[i]`` from node ``nodes[i]``."""
        np.subtract.at(self.amounts, (rows, nodes), amounts)
        self._changed.append(np.unique(nodes))

    def holds(self, request: PodRequest, taken: Sequence[Taken] = ()) -> Mask:
        """Which nodes have as much left, minus ``taken``. The caller must not write to the mask."""
        if not taken:
            return self._holds(request)
        if len(taken) > _COMBINED_MAX:
            left = self._left(request, taken)
            found: Mask = np.logical_and.reduce(left >= request.need, axis=0)
            return found
        first, *others = taken
        mask = self.holds(request, others).copy()
        mask[first.nodes] = self.holds(_beside(request, first.request), others)[first.nodes]
        return mask

    def short_of(self, nodes: Ints, request: PodRequest, taken: Sequence[Taken]) -> Mask:
        """Which of these nodes (columns) have less left of each resource, minus ``taken``."""
        short: Mask = self._left(request, taken).take(nodes, axis=1) < request.need
        return short

    def _holds(self, request: PodRequest) -> Mask:
        seen, mask = self._masks.get(request.key, (0, None))
        if mask is not None and seen == self.version:
            return mask
        if mask is None or self.version - seen > _CHANGES_MAX:
            mask = np.logical_and.reduce(self.amounts[request.rows] >= request.need, axis=0)
        else:
            nodes, mask = self.changed(seen), mask.copy()
            left = self.amounts.take(nodes, axis=1)[request.rows]
            mask[nodes] = np.logical_and.reduce(left >= request.need, axis=0)
        self._masks[request.key] = self.version, mask
        return mask

    def _left(self, request: PodRequest, taken: Sequence[Taken]) -> Ints:
        """The free amount of each requested resource on each node, less what is ``taken``."""
        left: Ints = self.amounts[request.rows]
        for each in taken:
            left[:, each.nodes] -= _needed_by(each.request, request)
        return left


@functools.lru_cache(1024)
def _beside(request: PodRequest, other: PodRequest) -> PodRequest:
    """The amounts of the first one's resources that one pod of each takes together."""
    need = request.need + _needed_by(other, request)
    return PodRequest.of(np.hstack((request.rows[:, np.newaxis], need)))


def _needed_by(other: PodRequest, request: PodRequest) -> Ints:
    """The request of the first for the resources of the second, as a column."""
    needed = np.where(request.rows[:, np.newaxis] == other.rows, other.need[:, 0], 0)
    return np.add.reduce(needed, axis=1, keepdims=True)


def _slowdown(speed: RelativeSpeed) -> int:
    """By what it is slowest at."""
    if speed is EVEN or speed == EVEN:
        return 0
    return math.ceil(SLOWDOWN_DEGREES * (1.0 - min(1.0, speed.products, speed.memory, speed.rails)))


def _aligned(nodes: tuple[Node, ...]) -> Ints:
    sound = [node.rails.order if node.rails and not node.rails.miscabled else () for node in nodes]
    ways = {order: at for at, order in enumerate(sorted({*sound} - {()}), 1)}
    return np.array([ways.get(order, 0) for order in sound], dtype=np.int64)


def _miscabled(nodes: tuple[Node, ...]) -> Ints:
    pairs = [
        (rail, column)
        for column, node in enumerate(nodes)
        if node.rails is not None
        for rail in dict.fromkeys(each.rail for each in node.rails.miscabled)
    ]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2).T


def _uplinks(links: tuple[Links, ...], nodes: tuple[Node, ...], tree: Domains) -> Iterator[Uplinks]:
    """Where a domain's own are not known, they are as many as its nodes need by the level's
    oversubscription; at least one's worth, as others of its nodes may have to join yet."""
    for level, its in enumerate(links):
        domains = tree.of_node[level + 1]
        capacity = np.maximum(1.0, np.bincount(domains) / its.oversubscription)
        if its.leaving:
            _, first = np.unique(domains, return_index=True)
            names = (nodes[at].domains[level] for at in first.tolist())
            reported = [its.leaving.get(name, 0.0) for name in names]
            capacity = np.where(reported, reported, capacity)
        yield Uplinks(domains, capacity, its.oversubscription)


def _reducing(links: tuple[Links, ...], nodes: tuple[Node, ...], tree: Domains) -> Iterator[Mask]:
    """A domain's name is that of any of its nodes'."""
    for level, its in enumerate(links):
        domains = tree.of_node[level + 1]
        reducing = np.zeros(int(domains.max(initial=-1)) + 1, dtype=np.bool_)
        if its.reducing:
            reducing[domains] = [node.domains[level] in its.reducing for node in nodes]
        yield reducing


def _check(nodes: tuple[Node, ...], levels: tuple[str, ...]) -> None:
    names: dict[str, Node] = {}
    for node in nodes:
        if node.name in names:
            raise ValueError(f"nodes: {node.name!r} is there twice, expected unique names")
        names[node.name] = node
        if len(node.domains) != len(levels):
            raise ValueError(
                f"node {node.name}: domains {node.domains!r}, expected one for each of {levels!r}"
            )
        _check_amounts(node.name, "allocatable", node.allocatable)
        _check_amounts(node.name, "used", node.used)


def _check_amounts(name: str, field: str, amounts: Amounts) -> None:
    for resource, amount in amounts.items():
        if not 0 <= amount <= NODE_AMOUNT_MAX:
            raise ValueError(
                f"node {name}: {field}[{resource!r}] is {amount}, expected 0 to {NODE_AMOUNT_MAX}"
            )


def _matrix(rows: dict[str, int], amounts: list[Amounts]) -> Ints:
    columns = [[each.get(name, 0) for each in amounts] for name in rows]
    return np.array(columns, dtype=np.int64).reshape(len(rows), len(amounts))
