"""Which nodes a gang gets, in the order of its ranks.

Problem: of the nodes that can take one pod each, choose as many as the gang has pods so that it
spans the fewest domains of the finest level, then of the next coarser, and so on. Among equals,
leave big domains whole (the smallest that suffices), then take the nodes with the least room left.

Idea: ``split`` is exact over any part of the tree, and cheap over a small one. A level needs at
least as many domains as its largest ones must be to hold the gang; an answer that meets this bound
at every level is optimal, wherever it was found. So the smallest domain that can hold the whole
gang in the fewest finest domains is tried first, and the whole cluster only when that one misses
the bound. Dropped: placing gangs of one decision together, which could pack better, but would let
a late job move an early one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from railwright_scheduler.placement.domains import Domains
from railwright_scheduler.placement.split import Supply, split

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Free:
    """The nodes to choose from: ``usable`` and ``room`` have an entry per node."""

    domains: Domains
    usable: Mask
    room: Ints


def choose(domains: Domains, usable: Mask, room: Ints, *, count: int) -> Ints:
    """Choose ``count`` of the usable nodes; return their columns, ascending: rank r gets the r-th.

    ``usable`` (at least ``count`` of it true) and ``room`` have one entry per node in topology
    order, which is what keeps the ranks of every domain contiguous.
    """
    free = _Free(domains, usable, room)
    if count == 1:
        return _tightest_node(free)
    caps, bulk = _sizes(free, domains.finest)
    if caps.max() >= count:
        return _tightest(free, _smallest(bulk, caps >= count), count)
    pods = _pods(_supply(free), count)
    shares = ((int(domain), int(pods[domain])) for domain in np.flatnonzero(pods))
    return np.concatenate([_tightest(free, domain, share) for domain, share in shares])


def _tightest_node(free: _Free) -> Ints:
    """The node with the least room, of such the one in the smallest finest domain."""
    least = free.room[free.usable].min()
    nodes = np.flatnonzero(free.usable & (free.room == least))
    caps = free.domains.total(free.usable.astype(np.int64), free.domains.finest)
    return nodes[[np.argmin(caps[free.domains.of_node[free.domains.finest][nodes]])]]


def _tightest(free: _Free, domain: int, count: int) -> Ints:
    """The usable nodes of one finest domain with the least room."""
    first, end = free.domains.bounds[-1][domain : domain + 2]
    nodes: Ints = first + np.flatnonzero(free.usable[first:end])
    if len(nodes) > count:
        by_room = np.argsort(free.room[nodes], kind="stable")
        nodes = np.sort(nodes[by_room[:count]])
    return nodes


def _smallest(bulk: Ints, among: Mask) -> int:
    return int(np.argmin(np.where(among, bulk, np.iinfo(np.int64).max)))


def _sizes(free: _Free, level: int) -> tuple[Ints, Ints]:
    """How many usable nodes each domain has, and their order from small to big, ties by room."""
    usable_room = free.room * free.usable
    caps = free.domains.total(free.usable.astype(np.int64), level)
    room = free.domains.total(usable_room, level)
    return caps, caps * (int(room.max()) + 1) + room


def _supply(free: _Free) -> Supply:
    sizes = [_sizes(free, level) for level in range(free.domains.finest + 1)]
    return Supply(
        domains=free.domains,
        caps=tuple(caps for caps, _ in sizes),
        bulk=tuple(bulk for _, bulk in sizes),
    )


def _pods(supply: Supply, count: int) -> Ints:
    """How many pods each finest domain gets."""
    assert supply.caps[0][0] >= count > 0, f"{count} pods, {supply.caps[0][0]} usable nodes"
    fewest = [_fewest(caps, count) for caps in supply.caps]
    level, index = _home(supply, count, fewest[-1])
    pods = split(supply, level, index, count=count)
    if level == 0 or _spans(supply.domains, pods) == fewest:
        return pods
    return split(supply, 0, 0, count=count)


def _fewest(caps: Ints, count: int) -> int:
    """The fewest domains that could hold the gang if only their sizes mattered."""
    largest_first = np.sort(caps)[::-1]
    return int(np.searchsorted(np.cumsum(largest_first), count)) + 1


def _home(supply: Supply, count: int, fewest_finest: int) -> tuple[int, int]:
    """The smallest domain that holds the gang in the fewest finest domains, or the cluster."""
    level = max(level for level, caps in enumerate(supply.caps) if caps.max() >= count)
    able = supply.caps[level] >= count
    able &= _finest_needed(supply, level, count) == fewest_finest
    return (level, _smallest(supply.bulk[level], able)) if able.any() else (0, 0)


def _finest_needed(supply: Supply, level: int, count: int) -> Ints:
    """How many finest domains each domain of a level that can hold the gang needs for it."""
    caps = supply.caps[-1]
    starts = supply.domains.finest_bounds(level)[:-1]
    owner = np.zeros(len(caps), dtype=np.int64)
    owner[starts[1:]] = 1
    owner = np.cumsum(owner)
    largest_first = caps[np.lexsort((-caps, owner))]
    held = np.cumsum(largest_first) - largest_first
    held -= held[starts][owner]
    needed: Ints = np.add.reduceat(held < count, starts, dtype=np.int64)
    return needed


def _spans(domains: Domains, pods: Ints) -> list[int]:
    return [
        int(np.count_nonzero(np.add.reduceat(pods, domains.finest_bounds(level)[:-1])))
        for level in range(domains.finest + 1)
    ]
