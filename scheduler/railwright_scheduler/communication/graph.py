"""A job's communication: its communicators, each with what it sends in a step."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from railwright_scheduler.communication.grid import Axis, Grid
from railwright_scheduler.model.workload import Routing


class Collective(StrEnum):
    """A communication operation of a group of ranks."""

    ALL_REDUCE = "all-reduce"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_GATHER = "all-gather"
    ALL_TO_ALL = "all-to-all"
    DISPATCH = "dispatch"
    RING = "ring"
    SEND = "send"
    PUSH = "push"
    PULL = "pull"
    COPY = "copy"
    LOAD = "load"
    STORE = "store"


class Overlap(StrEnum):
    """Computation that runs beside the communication, and hides as much of it as it lasts."""

    NOTHING = "nothing"
    BACKWARD = "the last backward pass"
    ATTENTION = "attention"
    PRODUCTS = "matrix products"
    MICRO_BATCH = "another micro-batch"
    OUTPUT = "the products that tell the next tokens"


@dataclass(frozen=True, slots=True)
class Transfer:
    """One kind of operation of a communicator.

    ``size`` is the bytes of the buffer of a rank: reduced, gathered in the end, sent to all, to the
    next, or around a ring; for a dispatch, its tokens, which are routed by ``routing``; pushed to
    ``servers`` by all of a group, and pulled; copied to the host or from it, loaded from its disks
    or stored on them.
    ``count`` is the number of calls in a step.
    """

    what: str
    collective: Collective
    size: int
    count: int
    overlap: Overlap = Overlap.NOTHING
    routing: Routing | None = None
    servers: int = 0

    def sent(self, ranks: int) -> int:
        """Bytes that one rank sends in a step, by the algorithm that sends the fewest and has no
        switch add up; what it pulls is sent by others."""
        if self.routing:
            _, reached = self.routing.reached(1, ranks)
            return round(self.count * self.size * reached * (ranks - 1) / ranks)
        share = {
            Collective.ALL_REDUCE: 2 * (ranks - 1),
            Collective.REDUCE_SCATTER: ranks - 1,
            Collective.ALL_GATHER: ranks - 1,
            Collective.ALL_TO_ALL: ranks - 1,
            Collective.PULL: 0,
        }.get(self.collective, ranks)
        return self.count * self.size * share // ranks


@dataclass(frozen=True, slots=True)
class Communicator:
    """The ranks of ``grid`` that differ along ``axes``: one group for each of the rest's places.

    Along none each rank is a group, which its host belongs to.
    """

    name: str
    grid: Grid
    axes: tuple[Axis, ...]
    traffic: tuple[Transfer, ...]

    @property
    def ranks(self) -> int:
        """Of one group."""
        return self.grid.size(*self.axes)

    @property
    def sent(self) -> int:
        """Bytes that one rank sends in a step."""
        return sum(each.sent(self.ranks) for each in self.traffic)


def pairs(communicators: tuple[Communicator, ...]) -> dict[tuple[int, int], int]:
    """Bytes a step that each two ranks exchange, the lower rank first: along rings, with all others
    where each sends to all."""
    exchanged: Counter[tuple[int, int]] = Counter()
    for communicator in communicators:
        for group in communicator.grid.groups(*communicator.axes).tolist():
            for traffic in communicator.traffic:
                for one, other, size in _exchanges(traffic, group):
                    exchanged[min(one, other), max(one, other)] += size
    return dict(sorted(exchanged.items()))


def _exchanges(traffic: Transfer, group: list[int]) -> Iterator[tuple[int, int, int]]:
    sent = traffic.sent(len(group))
    if len(group) == 1:
        return
    match traffic.collective:
        case Collective.ALL_TO_ALL | Collective.DISPATCH:
            for one, other in itertools.combinations(group, 2):
                yield one, other, 2 * sent // (len(group) - 1)
        case Collective.PUSH | Collective.PULL:
            return
        case Collective.SEND:
            for one, other in itertools.pairwise(group):
                yield one, other, sent
        case _:
            for one, other in zip(group, group[1:] + group[:1], strict=True):
                yield one, other, sent
