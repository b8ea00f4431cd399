"""The score of an order of ranks, compared with the network's own order: domain after domain, as
schedulers number ranks without the job's traffic."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PredictedStep:
    """Microseconds of a training step on these machines: with ranks as they are placed, in the
    network's order, and in the next best of the orders that were looked at; and how many of those
    as placed go to what other jobs send over the same links, to nodes that are slower than most of
    their kind, and to exposed communication."""

    machines: tuple[str, ...]
    placed_us: int
    network_order_us: int
    next_best_us: int
    others_us: int = 0
    slow_us: int = 0
    exposed_us: int = 0

    @property
    def times_us(self) -> tuple[int, ...]:
        """All of them, in this order."""
        order_us = self.placed_us, self.network_order_us, self.next_best_us
        return *order_us, self.others_us, self.slow_us, self.exposed_us


@dataclass(frozen=True, slots=True)
class CrossDomainBytes:
    """Bytes a step that cross the borders of a level's domains: with ranks as they are placed, and
    in the network's order."""

    level: str
    placed: int
    network_order: int


@dataclass(frozen=True, slots=True)
class PlacementScore:
    """``crossing`` has the coarsest level first. There is no ``predicted`` step for machines
    without a cost model. ``moved`` node ranks are on other nodes than in the attempt before. The
    traffic was ``measured``, or else derived; ``other_devices`` are kinds without a measurement.
    ``truncated`` is why the search ended early, empty if it did not: without a result by then,
    ranks are in the network's order and the other fields are empty."""

    crossing: tuple[CrossDomainBytes, ...]
    predicted: PredictedStep | None = None
    moved: int = 0
    measured: bool = False
    other_devices: tuple[str, ...] = ()
    truncated: str = ""
