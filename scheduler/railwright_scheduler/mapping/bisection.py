"""Recursive bisection of ranks and domains with the smallest cuts.

As in Scotch and similar mappers, but for a grid of ranks, whose structure gives the cuts without a
search. Sorted along one axis, and within its planes along another, any prefix of the ranks can be
cut off; of the prefixes that fill some of the domains exactly, the one with the smallest cut is
taken. It fits domains of unequal size, which boxes cannot fill. With a random ``source`` the result
differs each time: several tries find better ones than the first.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from railwright_scheduler.arrays import Floats, Ints, Mask
from railwright_scheduler.budget import CALL, ELEMENT, SORTED, UNLIMITED, WorkBudget
from railwright_scheduler.communication.traffic_matrix import TrafficMatrix
from railwright_scheduler.mapping.problem import Places, by_domain
from railwright_scheduler.random_source import RandomSource

NOISE = 0.15
"""The random increase of a cut, as a share of it."""

UNEVEN = 0.1
"""And one that cuts off next to nothing does by so much: even halves leave more to choose from."""


HALVED = 60_000
"""Work for a part that is halved, however small it is."""


@dataclass(frozen=True, slots=True, eq=False)
class RankSubset:
    """Some of the ranks, and the traffic between them; ``a`` and ``b`` are positions in
    ``ranks``."""

    ranks: Ints
    a: Ints
    b: Ints
    weight: Floats

    def of(self, selected: Mask) -> RankSubset:
        """Those of them which are inside."""
        kept = selected[self.a] & selected[self.b]
        row = selected.cumsum() - 1
        return RankSubset(
            self.ranks[selected], row[self.a[kept]], row[self.b[kept]], self.weight[kept]
        )


def bisected(
    matrix: TrafficMatrix,
    places: Places,
    *,
    source: RandomSource | None = None,
    work: WorkBudget = UNLIMITED,
) -> Ints:
    """The place of each rank; as many places. Another one each time with ``source``. Raises
    OverBudgetError."""
    whole = RankSubset(np.arange(matrix.ranks), matrix.a, matrix.b, matrix.weight)
    return Bisection(matrix, places, source, work).laid(whole, np.lexsort(places.domains))


class Bisection:
    """Bisection of one job's ranks onto one set of places."""

    def __init__(
        self, matrix: TrafficMatrix, places: Places, source: RandomSource | None, work: WorkBudget
    ) -> None:
        self._work = work
        wide = sum(size > 1 for size in matrix.shape)
        work.spend((1 + wide * (wide - 1)) * (CALL + SORTED * matrix.ranks))
        self._domains = places.domains
        self._orders = _orders(matrix.shape)
        self._source = source
        self._where = np.zeros(matrix.ranks, dtype=np.int64)

    def laid(self, part: RankSubset, line: Ints) -> Ints:
        """The place of each rank of a part; ``line`` are as many, sorted by domains."""
        self._fill(part, line, len(self._domains) - 1)
        return self._where[part.ranks]

    def _fill(self, whole: RankSubset, line: Ints, tier: int) -> None:
        """Lay these ranks onto these places, which lie in one domain of the tier above."""
        if tier < 0:
            self._where[whole.ranks] = line
            return
        # No recursion: where a room is cut off at a time, it is as deep as there are rooms.
        left = [(whole, by_domain(line, self._domains[tier]))]
        while left:
            part, its = left.pop()
            if len(its) == 1:
                self._fill(part, its[0], tier - 1)
            else:
                left += reversed([*self._halved(part, its, tier)])

    def _halved(
        self, part: RankSubset, rooms: list[Ints], tier: int
    ) -> Iterator[tuple[RankSubset, list[Ints]]]:
        if self._source is not None:
            rooms = [rooms[at] for at in self._source.permutation(len(rooms))]
        sizes = [len(each) for each in rooms]
        reached = reachable_sums(sizes)
        front, size = self._front(part, _even(reached[-1], len(part.ranks)))
        before = subset(sizes, reached, size)
        for selected, chosen in (front, before), (~front, [not each for each in before]):
            its = [*itertools.compress(rooms, chosen)]
            if len(its) == 1 and tier == 0:
                self._where[part.ranks[selected]] = its[0]
            else:
                yield part.of(selected), its

    def _front(self, part: RankSubset, sums: Ints) -> tuple[Mask, int]:
        """The ranks to separate from the others: a possible number with the smallest cut."""
        cells = 2 * SORTED * len(part.ranks) + 5 * ELEMENT * len(part.a)
        self._work.spend(HALVED + len(self._orders) * (CALL + cells))
        behind = self._orders[:, part.ranks].argsort(axis=1).argsort(axis=1)
        uneven = np.abs(2.0 * sums / len(part.ranks) - 1.0)
        cut = _cuts(part, behind)[:, sums] * (1.0 + UNEVEN * uneven)
        if self._source is not None:
            cut *= 1.0 + NOISE * self._source.uniform(*cut.shape)
        order, at = divmod(int(cut.argmin()), len(sums))
        return behind[order] < sums[at], int(sums[at])


def _orders(shape: Sequence[int]) -> Ints:
    """Where each cell of a grid comes along one axis and within its planes along another, for all
    pairs of them."""
    along = np.indices(shape[::-1])[::-1].reshape(len(shape), -1)
    wide = [axis for axis, size in enumerate(shape) if size > 1]
    if len(wide) < 2:
        return np.arange(along.shape[1])[None, :]
    found = []
    for pair in itertools.permutations(wide, 2):
        others = [along[axis] for axis in wide if axis not in pair]
        found.append(np.argsort(np.lexsort([*others, along[pair[1]], along[pair[0]]])))
    return np.array(found)


def _cuts(part: RankSubset, behind: Ints) -> Floats:
    """What is cut in each order by cutting off each number of ranks; ``behind`` is how many each
    rank is behind."""
    rows, columns = len(behind), len(part.ranks) + 1
    offset = np.arange(rows)[:, None] * columns + 1
    a, b = behind[:, part.a], behind[:, part.b]
    weight = np.concatenate([part.weight] * rows)
    begun = np.bincount((np.minimum(a, b) + offset).ravel(), weight, rows * columns)
    ended = np.bincount((np.maximum(a, b) + offset).ravel(), weight, rows * columns)
    cuts: Floats = (begun - ended).reshape(rows, columns).cumsum(axis=1)
    return cuts


def reachable_sums(sizes: list[int]) -> list[int]:
    """The sums that none, the first, the first two of them... can have, as bits."""
    return [
        *itertools.accumulate(sizes, lambda reached, size: reached | reached << size, initial=1)
    ]


def _even(reached: int, whole: int) -> Ints:
    """Those of these sums from a quarter of all to three, or else all but none and all."""
    octets = np.frombuffer(reached.to_bytes(whole // 8 + 1, "little"), dtype=np.uint8)
    is_reached = np.unpackbits(octets, bitorder="little")
    quarter = -(-whole // 4)
    (even,) = is_reached[quarter : 3 * whole // 4 + 1].nonzero()
    return even + quarter if len(even) else is_reached.nonzero()[0][1:-1]


def subset(sizes: list[int], reached: list[int], target: int) -> list[bool]:
    """Whether each one is among the earliest that add up to the target."""
    chosen = []
    for size, without in zip(sizes[::-1], reached[-2::-1], strict=True):
        taken = not without >> target & 1
        chosen.append(taken)
        target -= size if taken else 0
    return chosen[::-1]
