"""How many pods of a gang each finest domain gets, exactly, for any number of levels.

Problem: each domain can take so many pods; use the fewest finest domains, among such splits the
fewest of the level above, and so on up.

Idea: "racks first, then blocks, then ..." is one number when each level counts in units larger
than all coarser ones together. The least cost of placing n pods in a domain, for every n, is then
a table, and a parent's table is the (min, +) product of its children's. At the last level but one
no product is needed: the fewest racks are the largest. Waste, the eligible nodes of all domains
opened above the finest, is the smallest unit: of equal splits the one in small domains wins.

Cost: a product of tables of a and b entries takes (a + b) * min(a, b) additions, cut at the size of
the gang; over a tree of n nodes that is at most about n*count a level. Domains with one eligible
node cost the same each: adding them is the least value in a sliding window, in n*log(n). Costs
beyond int64 (many levels, few labels) are several words, compared from the first to the last.
``split`` counts its work before it begins; ``filled`` is for gangs that would take too much.
Source: the textbook knapsack on a tree, with costs in lexicographic order.

Dropped: the most even split among equals, and the choice of racks that leaves the least waste
(subset sum); the smallest run of racks by size that suffices comes close.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from railwright_scheduler.arrays import Ints, Mask
from railwright_scheduler.budget import CALL, SORTED, WorkBudget
from railwright_scheduler.placement.domains import Domains

_INT64_SAFE = 2**61
_CELLS_AT_ONCE = 2**15

_CELL, _CELL_OF_WORDS, _TABLE = 2, 10, 10 * CALL
"""Work of adding two entries and comparing the sum, of one word or of each word more; and of a
table, however small, with its merge and its share of the pods."""


@dataclass(frozen=True, slots=True)
class Supply:
    """What the domains can take: pods (``caps``) at each level, and the order of size.

    ``bulk`` sorts the domains of a level from small to big: by pods, then by room in them.
    Pods of a domain are a multiple of its level's ``grain``.
    """

    domains: Domains
    caps: tuple[Ints, ...]
    bulk: tuple[Ints, ...]
    grain: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Prices:
    """``opening[l]`` is the cost of using one more domain of level l; ``never`` is above all.

    A cost has one word or more, the most significant first. Each word has room for all that is
    added to it, so words are added one by one, with no carry.
    """

    opening: Ints
    never: Ints


class _Table(NamedTuple):
    """``cost[:, n]`` is the least cost of n pods in a domain.

    Either ``finest`` names the finest domains that share them, or ``parts`` the tables that do:
    the last part takes ``picks[-1][n]`` of n, the one before its pick of what is left, and so on.
    """

    cost: Ints
    finest: Ints | None = None
    parts: tuple[_Table, ...] = ()
    picks: tuple[Ints, ...] = ()


def split(supply: Supply, level: int, index: int, *, count: int, work: WorkBudget) -> Ints:
    """Split ``count`` pods inside one domain; return the pods of every finest domain there is.

    The domain (the ``index``-th of ``level``) must have at least ``count`` eligible nodes. Raises
    OverBudgetError.
    """
    pods = np.zeros(len(supply.caps[-1]), dtype=np.int64)
    if level == supply.domains.finest:
        pods[index] = count
        return pods
    prices = _prices(supply, count)
    work.spend(_work(supply, level, index, count=count, words=len(prices.never)))
    table = _table(supply, prices, level, index, count=count)
    _hand_out(supply, table, count, pods)
    return pods


def filled(supply: Supply, level: int, index: int, *, count: int) -> Ints:
    """As ``split``, by a rule that takes no search: from level to level the largest domains first.

    What a domain may take is a multiple of its grain and no more than the domains in it may take
    together, so what is left for the last of them is a multiple of its grain as well.
    """
    pods = np.zeros(len(supply.caps[level]), dtype=np.int64)
    pods[index] = count
    for inner in range(level + 1, supply.domains.finest + 1):
        caps, first = supply.caps[inner], supply.domains.inner_bounds[inner - 1]
        parent = np.repeat(np.arange(len(pods)), np.diff(first))
        # A domain's children stay where they are: only their order among each other changes.
        largest = np.lexsort((-caps, parent))
        held = np.cumsum(caps[largest]) - caps[largest]
        held -= held[first[:-1]][parent]
        shares = np.zeros(len(caps), dtype=np.int64)
        shares[largest] = np.clip(pods[parent] - held, 0, caps[largest])
        pods = shares
    return pods


def _work(supply: Supply, level: int, index: int, *, count: int, words: int) -> int:
    """The work of ``split``, from the sizes of its tables."""
    work = 0
    nodes = supply.domains.bounds[level][index : index + 2]
    for at in range(level, supply.domains.finest):
        first, end = np.searchsorted(supply.domains.bounds[at + 1], nodes)
        caps = np.minimum(supply.caps[at + 1][first:end], count)
        work += _TABLE + SORTED * int(caps.sum()) * words
        if at + 1 < supply.domains.finest:
            opens = supply.domains.bounds[at + 1][first:end]
            cells = _cells(caps, supply.domains.of_node[at][opens], count=count)
            work += _TABLE * int(np.count_nonzero(caps > 1))
            work += cells * max(_CELL, _CELL_OF_WORDS * (words - 1))
    return work


def _cells(caps: Ints, parent: Ints, *, count: int) -> int:
    """How many sums of two entries the products of the tables of all parents have."""
    own, parent = caps[caps > 1], parent[caps > 1]
    before = np.cumsum(own) - own
    before -= before[np.searchsorted(parent, parent)]
    merged = before > 0
    totals = np.minimum(before + own, count)[merged] + 1
    return int((totals * (np.minimum(before, own)[merged] + 1)).sum())


def _prices(supply: Supply, count: int) -> _Prices:
    levels = supply.domains.finest
    word, unit = 0, 1 + levels * int(supply.caps[0][0])
    units = [(0, 0)]
    for level in range(1, levels + 1):
        if unit * (1 + count) >= _INT64_SAFE:
            word, unit = word + 1, 1
        units.append((word, unit))
        unit *= 1 + min(count, int(np.count_nonzero(supply.caps[level])))
    opening = np.zeros((levels + 1, word + 1), dtype=np.int64)
    for level, (its, price) in enumerate(units):
        opening[level, word - its] = price
    never = np.zeros(word + 1, dtype=np.int64)
    never[0] = unit
    return _Prices(opening, never)


def _table(supply: Supply, prices: _Prices, level: int, index: int, *, count: int) -> _Table:
    """The table of one domain above the finest level, with the cost of opening it."""
    finest = np.arange(*supply.domains.finest_bounds[level][index : index + 2])
    if level == supply.domains.finest - 1:
        inner = _largest_first(supply, prices, finest, count=count)
    else:
        parts = [
            _table(supply, prices, level + 1, child, count=count)
            for child in _children(supply, level, index)
        ]
        inner = _product(prices, parts, count=count)
        singles = finest[_single(supply, level + 1, finest)]
        if len(singles):
            inner = _with_singles(supply, prices, level, inner, singles, count=count)
    held = int(supply.caps[level][index])
    cost = inner.cost[:, : held + 1].copy()
    cost[:, 1:] += prices.opening[level][:, np.newaxis]
    cost[-1, 1:] += held
    if supply.grain[level] > 1:
        cost[:, np.arange(cost.shape[1]) % supply.grain[level] > 0] = prices.never[:, np.newaxis]
    return _Table(_at_most_never(prices, cost), inner.finest, inner.parts, inner.picks)


def _at_most_never(prices: _Prices, cost: Ints) -> Ints:
    """So that costs that are never met do not grow."""
    cost[:, cost[0] >= prices.never[0]] = prices.never[:, np.newaxis]
    return cost


def _children(supply: Supply, level: int, index: int) -> list[int]:
    """The domains below this one with more than one eligible node, the last first.

    The part merged last is offered the most pods first: so full domains come first by path.
    """
    first, end = np.searchsorted(
        supply.domains.bounds[level + 1], supply.domains.bounds[level][index : index + 2]
    )
    shared = np.flatnonzero(supply.caps[level + 1][first:end] > 1) + first
    children: list[int] = shared[::-1].tolist()
    return children


def _single(supply: Supply, level: int, finest: Ints) -> Mask:
    """Which of these finest domains hold the only eligible node of their ancestor at ``level``."""
    first_node = supply.domains.bounds[-1][finest]
    ancestor = supply.domains.of_node[level][first_node]
    single: Mask = (supply.caps[-1][finest] == 1) & (supply.caps[level][ancestor] == 1)
    return single


def _largest_first(supply: Supply, prices: _Prices, finest: Ints, *, count: int) -> _Table:
    held = np.sort(supply.caps[-1][finest])[::-1].cumsum()
    needed = held.searchsorted(np.arange(min(int(held[-1]), count) + 1)) + 1
    needed[0] = 0
    return _Table(needed * prices.opening[-1][:, np.newaxis], finest)


def _with_singles(
    supply: Supply, prices: _Prices, level: int, inner: _Table, singles: Ints, *, count: int
) -> _Table:
    """A product's table, and that of as many finest domains that are alone in theirs."""
    price = prices.opening[level + 1 :].sum(axis=0)
    price[-1] += supply.domains.finest - 1 - level
    cost, pick = _merge_line(inner.cost, price, len(singles), count=count)
    pods = np.arange(min(len(singles), count) + 1)
    alone = _Table(pods * price[:, np.newaxis], singles)
    cost = _at_most_never(prices, cost)
    return _Table(cost, parts=(*inner.parts, alone), picks=(*inner.picks, pick))


def _product(prices: _Prices, parts: list[_Table], *, count: int) -> _Table:
    if not parts:
        return _Table(np.zeros((len(prices.never), 1), dtype=np.int64))
    cost = parts[0].cost
    picks = [np.arange(cost.shape[1])]
    for part in parts[1:]:
        cost, pick = _merge(prices, cost, part.cost, count=count)
        cost = _at_most_never(prices, cost)
        picks.append(pick)
    return _Table(cost, parts=tuple(parts), picks=tuple(picks))


def _merge(prices: _Prices, ahead: Ints, part: Ints, *, count: int) -> tuple[Ints, Ints]:
    """The (min, +) product, and for each total how many pods the part takes (most of equals)."""
    lengths = ahead.shape[1], part.shape[1]
    size, width = min(sum(lengths) - 1, count + 1), min(lengths)
    # A row of sums per total, from most pods in the part to fewest; the shorter table is the row.
    row, longer = (part[:, ::-1], ahead) if width == lengths[1] else (ahead, part)
    padded = np.full((len(prices.never), size + width - 1), prices.never[:, np.newaxis])
    columns = min(longer.shape[1], size)
    padded[:, width - 1 : width - 1 + columns] = longer[:, :columns]
    stride = padded.itemsize
    windows: Ints = np.ndarray(
        (len(padded), size, width), np.int64, padded, strides=(padded.strides[0], stride, stride)
    )
    if longer is part:
        windows = windows[:, :, ::-1]
    rows = max(1, _CELLS_AT_ONCE // width)
    chunks = [_least(windows[:, at : at + rows], row) for at in range(0, size, rows)]
    best = chunks[0] if len(chunks) == 1 else np.concatenate(chunks)
    totals = np.arange(size)
    cost = windows[:, totals, best] + row[:, best]
    return cost, (totals - best if longer is part else width - 1 - best)


def _least(windows: Ints, row: Ints) -> Ints:
    """Where in each window the sum with the row is the least, the first of equals."""
    sums = windows[0] + row[0]
    for word in range(1, len(row)):
        more = sums != sums.min(axis=1)[:, np.newaxis]
        np.add(windows[word], row[word], out=sums)
        np.putmask(sums, more, np.iinfo(np.int64).max)
    best: Ints = np.argmin(sums, axis=1)
    return best


def _merge_line(ahead: Ints, price: Ints, most: int, *, count: int) -> tuple[Ints, Ints]:
    """As ``_merge`` with a part of up to ``most`` pods at the same price each.

    A total of t of which j are ahead costs ahead[j] - j*price, and t*price whatever j is: so the
    best j is where the first is the least of a window of j. It is found by the order of all of
    them, with the least from both ends of blocks as long as the window (van Herk).
    """
    size: int = min(ahead.shape[1] + most, count + 1)
    columns: int = min(ahead.shape[1], size)
    width = most + 1
    rest = ahead[:, :columns] - np.arange(columns) * price[:, np.newaxis]
    order = np.lexsort(rest[::-1])
    blocks = np.full((-(-(most + size) // width), width), columns, dtype=np.int64)
    blocks.reshape(-1)[most + order] = np.arange(columns)
    from_first = np.minimum.accumulate(blocks, axis=1).reshape(-1)
    to_last = np.minimum.accumulate(blocks[:, ::-1], axis=1)[:, ::-1].reshape(-1)
    totals = np.arange(size)
    best = order[np.minimum(to_last[totals], from_first[totals + most])]
    cost = rest[:, best] + totals * price[:, np.newaxis]
    return cost, totals - best


def _hand_out(supply: Supply, table: _Table, count: int, pods: Ints) -> None:
    if table.finest is not None:
        if count:
            caps, order = supply.caps[-1][table.finest], supply.bulk[-1][table.finest]
            pods[table.finest] = _smallest_run(caps, order, count)
        return
    left = count
    for part, pick in zip(reversed(table.parts), reversed(table.picks), strict=True):
        share = int(pick[left])
        _hand_out(supply, part, share, pods)
        left -= share
    assert left == 0, f"{left} of {count} pods without a domain"


def _smallest_run(caps: Ints, order: Ints, count: int) -> Ints:
    """Fill the fewest domains, as small as possible; the rest goes to the smallest that holds it.

    Sorted by size, the run of that many neighbours that starts earliest and suffices is taken.
    """
    by_size = np.argsort(order, kind="stable")
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
