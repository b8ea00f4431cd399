"""Decisions about the jobs of a snapshot: which start where, and which wait."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from railwright_scheduler.model.placement_score import PlacementScore
from railwright_scheduler.model.reasons import Reason
from railwright_scheduler.model.snapshot import QueueRound


@dataclass(frozen=True, slots=True)
class Admit:
    """Start this attempt: ``nodes[r]`` is the node of node rank r.

    They are in the network's order, or in one of some ``score`` where it is known what the ranks
    send each other. ``spans`` counts the domains used at each level of the snapshot, the coarsest
    first.
    """

    job_uid: str
    attempt: int
    nodes: tuple[str, ...]
    spans: tuple[int, ...]
    score: PlacementScore | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Do not start this job now, and why."""

    job_uid: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Decisions:
    """What to do about every job of the snapshot: each in exactly one list, in queue order.

    ``reservations`` has the names of the nodes that waiting jobs have reserved, by their UID;
    ``queue_round`` is where the next cycle goes on, None if this one reached the end.
    """

    admitted: tuple[Admit, ...]
    waiting: tuple[Wait, ...]
    reservations: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    queue_round: QueueRound | None = None
