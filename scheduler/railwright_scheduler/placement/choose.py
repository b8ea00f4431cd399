"""Choose the nodes of a gang, in the order of its ranks.

Problem: of the nodes that can take one pod each, choose as many as the gang has pods so that it
spans the fewest domains of the finest level, then of the next coarser, and so on, within the job's
constraints. Among equals, leave big domains whole (the smallest that suffices), then take
the nodes with the least free capacity left.

Idea: ``split`` is exact over any part of the tree, and cheap over a small one. A level needs at
least as many domains as its largest ones must be to hold the gang; an answer that meets this bound
at every level is optimal, wherever it was found. So the smallest domain that can hold the whole
gang in the fewest finest domains is tried first, and the whole cluster only if that one misses the
bound. A gang whose split would exceed the remaining work budget gets the largest domains instead.
Not done: placing the gangs of one decision together, which could pack better but would let a later
job change the nodes of an earlier one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from railwright_scheduler.arrays import Ints, Mask
from railwright_scheduler.budget import UNLIMITED, WorkBudget
from railwright_scheduler.placement.constraints import ANYWHERE, ResolvedConstraints
from railwright_scheduler.placement.constraints import caps as limit_caps
from railwright_scheduler.placement.domains import Domains, places
from railwright_scheduler.placement.split import Supply, filled, split


@dataclass(frozen=True, slots=True)
class _Free:
    """The nodes to choose from: each array has an entry per node."""

    domains: Domains
    eligible: Mask
    free_capacity: Ints


def choose(
    domains: Domains,
    eligible: Mask,
    free_capacity: Ints,
    *,
    count: int,
    limits: ResolvedConstraints = ANYWHERE,
    work: WorkBudget = UNLIMITED,
) -> Ints:
    """Choose ``count`` eligible nodes; return their columns, ascending: rank r gets the r-th.

    ``eligible`` and ``free_capacity`` have one entry per node in topology order, which keeps the
    ranks of every domain contiguous. There must be ``capacity`` for so many within the limits.
    """
    free = _Free(domains, eligible, free_capacity)
    if count == 1:
        return _tightest_node(free)
    caps = limit_caps(domains, eligible, limits)
    if caps[-1].max() >= count:
        bulk = _bulk(free, free.free_capacity, caps[-1], domains.finest)
        pods = np.zeros(len(bulk), dtype=np.int64)
        pods[_smallest(bulk, caps[-1] >= count)] = count
    else:
        pods = _pods(_supply(free, caps, limits), count, top=_top(caps, count, limits), work=work)
    return _tightest(free, pods)


def fewest_domains(
    domains: Domains,
    caps: tuple[Ints, ...],
    size: Ints,
    *,
    count: int,
    level: int,
    work: WorkBudget,
) -> Mask:
    """The nodes of the finest domains that a gang gets that may have ``caps`` pods in each domain
    of each level, within one domain of this ``level``. Of equal domains those of the least ``size``
    (of each finest one) are chosen.
    """
    if min(int(its.max()) for its in caps) >= count:
        finest = caps[-1] * (int(size.sum()) + 1) + size
        return domains.nodes_in(np.array([_smallest(finest, caps[-1] >= count)]), domains.finest)
    sizes = [np.add.reduceat(size, bounds[:-1]) for bounds in domains.finest_bounds]
    bulk = tuple(its * (int(size.sum()) + 1) + most for its, most in zip(caps, sizes, strict=True))
    supply = Supply(domains, caps, bulk, grain=(1,) * len(caps))
    pods = _pods(supply, count, top=level, work=work)
    return domains.nodes_in(np.flatnonzero(pods), domains.finest)


def _tightest_node(free: _Free) -> Ints:
    """The node with the least free capacity, of such the one in the smallest finest domain."""
    nodes = np.flatnonzero(free.eligible)
    owner = free.domains.of_node[free.domains.finest].take(nodes)
    amounts = free.free_capacity.take(nodes)
    least = np.flatnonzero(amounts == amounts.min())
    return nodes[least[[np.bincount(owner)[owner[least]].argmin()]]]


def _tightest(free: _Free, pods: Ints) -> Ints:
    """In each finest domain as many nodes as it has pods, those with the least free capacity."""
    owner = free.domains.of_node[free.domains.finest]
    nodes = np.flatnonzero(free.eligible & (pods > 0)[owner])
    owner = owner[nodes]
    nodes = nodes[np.lexsort((free.free_capacity[nodes], owner))]
    found: Ints = np.sort(nodes[places(owner) < pods[owner]])
    return found


def _smallest(bulk: Ints, among: Mask) -> int:
    return int(np.argmin(np.where(among, bulk, np.iinfo(np.int64).max)))


def _supply(free: _Free, caps: tuple[Ints, ...], limits: ResolvedConstraints) -> Supply:
    levels = range(free.domains.finest + 1)
    return Supply(
        domains=free.domains,
        caps=caps,
        bulk=tuple(_bulk(free, free.free_capacity, caps[level], level) for level in levels),
        grain=tuple(limits.grain(level) for level in levels),
    )


def _bulk(free: _Free, amounts: Ints, caps: Ints, level: int) -> Ints:
    """The order of domains from small to big, ties by these amounts of their nodes."""
    total = free.domains.total(amounts * free.eligible, level)
    found: Ints = caps * (int(total.max()) + 1) + total
    return found


def _top(caps: tuple[Ints, ...], count: int, limits: ResolvedConstraints) -> int:
    """The level of which one domain has to hold the gang."""
    for level in range(max(limits.rather, limits.within), limits.within, -1):
        if caps[level].max() >= count:
            return level
    return limits.within


def _pods(supply: Supply, count: int, *, top: int, work: WorkBudget) -> Ints:
    """How many pods each finest domain gets."""
    assert supply.caps[top].max() >= count > 0, f"{count} pods, room for {supply.caps[top].max()}"
    level, index = _home(supply, count, _fewest(supply.caps[-1], count), top=top)
    pods = None
    with work.search(100):
        pods = split(supply, level, index, count=count, work=work)
        if level != top and _spans(supply.domains, pods) != [
            _fewest(caps, count) for caps in supply.caps
        ]:
            whole = _roomiest(supply, count, top)
            pods = split(supply, top, whole, count=count, work=work)
    return filled(supply, level, index, count=count) if pods is None else pods


def _fewest(caps: Ints, count: int) -> int:
    """The fewest domains that could hold the gang if only their sizes mattered."""
    return int(np.sort(caps)[::-1].cumsum().searchsorted(count)) + 1


def _home(supply: Supply, count: int, fewest_finest: int, *, top: int) -> tuple[int, int]:
    """The smallest domain that holds the gang in the fewest finest domains, or one at the top."""
    level = max(level for level, caps in enumerate(supply.caps) if caps.max() >= count)
    able = supply.caps[level] >= count
    able &= _finest_needed(supply, level, count) == fewest_finest
    if able.any():
        return level, _smallest(supply.bulk[level], able)
    return top, _roomiest(supply, count, top)


def _roomiest(supply: Supply, count: int, level: int) -> int:
    """Of those domains that hold the gang, the smallest that needs the fewest finest ones."""
    able = supply.caps[level] >= count
    needed = np.where(able, _finest_needed(supply, level, count), np.iinfo(np.int64).max)
    return _smallest(supply.bulk[level], needed == needed.min())


def _finest_needed(supply: Supply, level: int, count: int) -> Ints:
    """How many finest domains each domain of a level that can hold the gang needs for it."""
    caps = supply.caps[-1]
    bounds = supply.domains.finest_bounds[level]
    starts, owner = bounds[:-1], np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    largest_first = caps[np.lexsort((-caps, owner))]
    held = np.cumsum(largest_first) - largest_first
    held -= held[starts][owner]
    needed: Ints = np.add.reduceat(held < count, starts, dtype=np.int64)
    return needed


def _spans(domains: Domains, pods: Ints) -> list[int]:
    return [
        int(np.count_nonzero(np.add.reduceat(pods, bounds[:-1])))
        for bounds in domains.finest_bounds
    ]
