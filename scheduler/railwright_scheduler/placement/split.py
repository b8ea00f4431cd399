"""How many pods of a gang each finest domain gets, exactly, for any number of levels.

Problem: each domain can take so many pods; use the fewest finest domains, among such splits the
fewest of the level above, and so on up.

Idea: "racks first, then blocks, then ..." is one number when each level counts in units larger
than all coarser ones together. The least cost of placing n pods in a domain, for every n, is then
a table, and a parent's table is the (min, +) product of its children's. At the last level but one
no product is needed: the fewest racks are the largest. Waste, the usable nodes of all domains
opened above the finest, is the smallest unit: of equal splits the one in small domains wins.

Cost: a product of tables of a and b entries takes a*b additions, cut at the size of the gang; over
a tree of n nodes that is at most about n*count a level. Children with one usable node cost the
same each and need no product. Costs beyond int64 (many levels, few labels) are counted in
Python's integers. Source: the textbook knapsack on a tree, with costs in lexicographic order.

Dropped: the most even split among equals, and the choice of racks that leaves the least waste
(subset sum); the smallest run of racks by size that suffices comes close.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from railwright_scheduler.placement.domains import Domains

Ints = NDArray[np.int64]
Costs = NDArray[Any]

_INT64_SAFE = 2**61
_CELLS_AT_ONCE = 2**20


@dataclass(frozen=True, slots=True)
class Supply:
    """What the domains can take: pods (``caps``) at each level, and the order of size.

    ``bulk`` sorts the domains of a level from small to big: by pods, then by room in them. Pods of
    a domain are a multiple of its level's ``grain``.
    """

    domains: Domains
    caps: tuple[Ints, ...]
    bulk: tuple[Ints, ...]
    grain: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Prices:
    """``opening[l]`` is the cost of using one more domain of level l; ``never`` is above all."""

    opening: tuple[int, ...]
    never: int

    @property
    def dtype(self) -> type:
        return np.int64 if self.never < _INT64_SAFE else object


@dataclass(frozen=True, slots=True)
class _Table:
    """``cost[n]`` is the least cost of n pods in a domain.

    Either ``finest`` names the finest domains that share them, or ``parts`` the tables that do:
    the last part takes ``picks[-1][n]`` of n, the one before its pick of what is left, and so on.
    """

    cost: Costs
    finest: Ints | None = None
    parts: tuple[_Table, ...] = ()
    picks: tuple[Ints, ...] = ()


def split(supply: Supply, level: int, index: int, *, count: int) -> Ints:
    """Split ``count`` pods inside one domain; return the pods of every finest domain there is.

    The domain (the ``index``-th of ``level``) must have at least ``count`` usable nodes.
    """
    pods = np.zeros(len(supply.caps[-1]), dtype=np.int64)
    if level == supply.domains.finest:
        pods[index] = count
        return pods
    table = _table(supply, _prices(supply, count), level, index, count=count)
    _hand_out(supply, table, count, pods)
    return pods


def _prices(supply: Supply, count: int) -> _Prices:
    levels = supply.domains.finest
    unit = 1 + levels * int(supply.caps[0][0])
    opening = [0]
    for level in range(1, levels + 1):
        opening.append(unit)
        unit *= 1 + min(count, len(supply.caps[level]))
    return _Prices(opening=tuple(opening), never=unit)


def _table(supply: Supply, prices: _Prices, level: int, index: int, *, count: int) -> _Table:
    """The table of one domain above the finest level, with the cost of opening it."""
    finest = np.arange(*supply.domains.finest_bounds(level)[index : index + 2])
    if level == supply.domains.finest - 1:
        inside = _largest_first(supply, prices, finest, count=count)
    else:
        singles = finest[_single(supply, level + 1, finest)]
        parts = [
            _table(supply, prices, level + 1, child, count=count)
            for child in _children(supply, level, index)
        ]
        if len(singles):
            parts.append(_one_each(supply, prices, level, singles, count=count))
        inside = _product(prices, parts, count=count)
    cost = inside.cost[: int(supply.caps[level][index]) + 1].copy()
    cost[1:] += prices.opening[level] + int(supply.caps[level][index])
    if supply.grain[level] > 1:
        cost[np.arange(len(cost)) % supply.grain[level] > 0] = prices.never
    return _Table(np.minimum(cost, prices.never), inside.finest, inside.parts, inside.picks)


def _children(supply: Supply, level: int, index: int) -> list[int]:
    """The domains below this one with more than one usable node, the last first.

    The part merged last is offered the most pods first: so full domains come first by path.
    """
    first, end = np.searchsorted(
        supply.domains.bounds[level + 1], supply.domains.bounds[level][index : index + 2]
    )
    shared = np.flatnonzero(supply.caps[level + 1][first:end] > 1) + first
    children: list[int] = shared[::-1].tolist()
    return children


def _single(supply: Supply, level: int, finest: Ints) -> NDArray[np.bool_]:
    """Which of these finest domains hold the only usable node of their ancestor at ``level``."""
    first_node = supply.domains.bounds[-1][finest]
    ancestor = supply.domains.of_node[level][first_node]
    single: NDArray[np.bool_] = (supply.caps[-1][finest] == 1) & (supply.caps[level][ancestor] == 1)
    return single


def _largest_first(supply: Supply, prices: _Prices, finest: Ints, *, count: int) -> _Table:
    held = np.cumsum(np.sort(supply.caps[-1][finest])[::-1])
    pods = np.arange(min(int(held[-1]), count) + 1)
    needed = np.searchsorted(held, pods) + (pods > 0)
    return _Table(needed.astype(prices.dtype) * prices.opening[-1], finest)


def _one_each(supply: Supply, prices: _Prices, level: int, finest: Ints, *, count: int) -> _Table:
    waste = supply.domains.finest - 1 - level
    price = sum(prices.opening[level + 1 :]) + waste
    pods = np.arange(min(len(finest), count) + 1)
    return _Table(pods.astype(prices.dtype) * price, finest)


def _product(prices: _Prices, parts: list[_Table], *, count: int) -> _Table:
    cost: Costs = np.zeros(1, dtype=prices.dtype)
    picks = []
    for part in parts:
        cost, pick = _merge(prices, cost, part.cost, count=count)
        cost = np.minimum(cost, prices.never)
        picks.append(pick)
    return _Table(cost, parts=tuple(parts), picks=tuple(picks))


def _merge(prices: _Prices, ahead: Costs, part: Costs, *, count: int) -> tuple[Costs, Ints]:
    """The (min, +) product, and for each total how many pods the part takes (most of equals)."""
    size = min(len(ahead) + len(part) - 1, count + 1)
    padded: Costs = np.full(size + len(part) - 1, prices.never, dtype=prices.dtype)
    known = min(len(ahead), size)
    padded[len(part) - 1 : len(part) - 1 + known] = ahead[:known]
    windows = sliding_window_view(padded, len(part))
    cost: Costs = np.empty(size, dtype=prices.dtype)
    pick = np.empty(size, dtype=np.int64)
    rows = max(1, _CELLS_AT_ONCE // len(part))
    for first in range(0, size, rows):
        sums = windows[first : first + rows] + part[::-1]
        best = np.argmin(sums, axis=1)
        cost[first : first + rows] = sums[np.arange(len(best)), best]
        pick[first : first + rows] = len(part) - 1 - best
    return cost, pick


def _hand_out(supply: Supply, table: _Table, count: int, pods: Ints) -> None:
    if table.finest is not None:
        if count:
            caps, bulk = supply.caps[-1][table.finest], supply.bulk[-1][table.finest]
            pods[table.finest] = _smallest_run(caps, bulk, count)
        return
    left = count
    for part, pick in zip(reversed(table.parts), reversed(table.picks), strict=True):
        share = int(pick[left])
        _hand_out(supply, part, share, pods)
        left -= share
    assert left == 0, f"{left} of {count} pods without a domain"


def _smallest_run(caps: Ints, bulk: Ints, count: int) -> Ints:
    """Fill the fewest domains, as small as possible; the rest goes to the smallest that holds it.

    Sorted by size, the run of that many neighbours that starts earliest and suffices is taken.
    """
    by_size = np.argsort(bulk, kind="stable")
    sizes = caps[by_size]
    held = np.concatenate(([0], np.cumsum(sizes)))
    fewest = int(np.searchsorted(np.cumsum(sizes[::-1]), count)) + 1
    first = int(np.argmax(held[fewest:] - held[:-fewest] >= count))
    rest = count - (held[first + fewest] - held[first + 1])
    smallest = int(np.searchsorted(sizes[: first + 1], rest))
    pods = np.zeros(len(caps), dtype=np.int64)
    pods[by_size[first + 1 : first + fewest]] = sizes[first + 1 : first + fewest]
    pods[by_size[smallest]] = rest
    return pods
