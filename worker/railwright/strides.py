"""Many ranks in few numbers: ranks that are evenly apart, and such runs that are so again."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated

from railwright import protocol

DEPTH_MAX = 4
RUNS_MAX = 1_024


@dataclass(frozen=True, slots=True)
class Stride:
    """So many ``times`` the same, each ``by`` so many ranks further."""

    by: Annotated[int, protocol.Between(1, protocol.RANKS_MAX)]
    times: Annotated[int, protocol.Between(2, protocol.RANKS_MAX)]


@dataclass(frozen=True, slots=True)
class Run:
    """Ranks from ``first`` on, repeated along each stride; the innermost comes first.

    Raises ProtocolError when they are more than a job may have.
    """

    first: protocol.Rank
    strides: Annotated[tuple[Stride, ...], protocol.AtMost(DEPTH_MAX)] = ()

    def __post_init__(self) -> None:
        if self.last >= protocol.RANKS_MAX or self.count > protocol.RANKS_MAX:
            expected = f"at most {protocol.RANKS_MAX - 1}"
            raise protocol.ProtocolError(f"Run: seen rank {self.last}, expected {expected}")

    @property
    def last(self) -> int:
        """The highest of its ranks."""
        return self.first + sum(each.by * (each.times - 1) for each in self.strides)

    @property
    def count(self) -> int:
        """How many ranks it is."""
        return math.prod(each.times for each in self.strides)


Runs = Annotated[tuple[Run, ...], protocol.AtMost(RUNS_MAX)]


def folded(ranks: Iterable[int]) -> tuple[Run, ...]:
    """These ranks, each once, ascending."""
    runs = [Run(rank) for rank in sorted({*ranks})]
    for _ in range(DEPTH_MAX):
        again = [*_repeated(runs)]
        if len(again) == len(runs):
            break
        runs = again
    return tuple(runs)


def unfolded(runs: Iterable[Run]) -> tuple[int, ...]:
    """All of these ranks."""
    return tuple(itertools.chain.from_iterable(map(_ranks, runs)))


def _repeated(runs: list[Run]) -> Iterator[Run]:
    """Runs that are alike and evenly apart become one."""
    at = 0
    while at < len(runs):
        run, times = runs[at], 1
        by = runs[at + 1].first - run.first if at + 1 < len(runs) else 0
        while at + times < len(runs) and _follows(runs[at + times], run, by=times * by):
            times += 1
        yield Run(run.first, (*run.strides, Stride(by, times))) if times > 1 else run
        at += times


def _follows(later: Run, run: Run, *, by: int) -> bool:
    return later.strides == run.strides and later.first == run.first + by


def _ranks(run: Run) -> list[int]:
    found = [run.first]
    for stride in run.strides:
        found = [rank + at * stride.by for at in range(stride.times) for rank in found]
    return found
