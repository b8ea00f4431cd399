"""What an order of ranks is good for, beside the network's own: domain after domain, as schedulers
number ranks that know the network and not the job."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PredictedStep:
    """Microseconds of a training step on these machines: with ranks as they are placed, in the
    network's order, and in the next best of the orders that were looked at; and how many of those
    as placed go to what other jobs send over the same links, and to nodes that are slower than most
    of their kind."""

    machines: tuple[str, ...]
    placed_us: int
    network_order_us: int
    next_best_us: int
    others_us: int = 0
    slow_us: int = 0


@dataclass(frozen=True, slots=True)
class CrossDomainBytes:
    """Bytes a step that cross the borders of a level's domains: with ranks as they are placed, and
    in the network's order."""

    level: str
    placed: int
    network_order: int


@dataclass(frozen=True, slots=True)
class PlacementScore:
    """``crossing`` has the coarsest level first. Nothing is ``predicted`` for machines that the
    cost model does not know. Of the attempt before, ``moved`` node ranks are on other nodes. What
    ranks send each other was ``measured``, or else derived: it may have been measured on none of
    these ``other_devices``. Where planning the job was ``over_budget`` the search ended early: if
    nothing was judged by then, ranks are in the network's order, and all else is empty."""

    crossing: tuple[CrossDomainBytes, ...]
    predicted: PredictedStep | None = None
    moved: int = 0
    measured: bool = False
    other_devices: tuple[str, ...] = ()
    over_budget: bool = False
