"""The closed set of decisions and of the reasons to wait, each with its numbers.

``explain`` makes text from these fields; nothing else turns a reason into text. All of them
are plain tuples, strings and exact integers, so that two equal decisions print the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from railwright_scheduler.model.placement_score import PlacementScore
from railwright_scheduler.model.snapshot import (
    NO_CONSTRAINTS,
    QueueRound,
    Taint,
    TopologyConstraints,
)

Pairs = tuple[tuple[str, str], ...]
AmountPairs = tuple[tuple[str, int], ...]


class ExclusionCause(StrEnum):
    """Why a node that is large enough takes no pod of the job now."""

    UNREADY = "unready"
    CORDONED = "cordoned"
    LOST = "lost"
    DOUBLE_BOOKED = "double-booked"
    TAINTED = "tainted"
    BUSY = "busy"


@dataclass(frozen=True, slots=True)
class QueueMissing:
    """The job names a queue that does not exist; ``existing`` are those that do, sorted."""

    queue: str
    existing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PriorityClassMissing:
    """The job names a PriorityClass that does not exist; ``existing`` are those that do, sorted.

    A snapshot has priorities as numbers only, so the caller that builds it sets this reason.
    """

    name: str
    existing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PodNamesTaken:
    """Pods that are not this job's have ``taken`` of the ``need`` names that its next attempt would
    use, ``first`` among them. The shell, which has the pods, sets this reason.
    """

    need: int
    taken: int
    first: str


@dataclass(frozen=True, slots=True)
class TierMissing:
    """The job names a tier that the network does not have; ``existing`` are its levels, the
    coarsest first."""

    tier: str
    existing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Shortage:
    """A scarce resource: the request of a pod, the most any node has, and the nodes with enough."""

    resource: str
    need: int
    most: int
    nodes: int


@dataclass(frozen=True, slots=True)
class RailsShort:
    """Why nodes that are large enough do not have their rails aligned: miscabled rails, each
    with the number of ``nodes`` of which it is; and of how many nodes no rails are known."""

    miscabled: tuple[tuple[int, int], ...]
    unknown: int


@dataclass(frozen=True, slots=True)
class NeverFits:
    """This cluster could not run the job even if empty and healthy; ``role`` is the one that does
    not fit, in a job of several.

    ``matched`` nodes match the selector and the node affinity (``unmatched`` more the selector
    alone), ``tolerated`` of the matched ones carry no lasting taint that the job does not tolerate,
    ``candidates`` of those are large enough and can be had together on the job's ``constraints``.
    ``shortages`` are the resources that fewer than ``need`` nodes have enough of; ``untolerated``
    the taints that keep matched nodes away; ``rails`` are there where they must be aligned.
    """

    need: int
    per_node: AmountPairs
    matched: int
    tolerated: int
    candidates: int
    shortages: tuple[Shortage, ...]
    selector: Pairs
    untolerated: tuple[Taint, ...]
    unmatched: int = 0
    constraints: TopologyConstraints = NO_CONSTRAINTS
    rails: RailsShort | None = None
    role: str = ""


@dataclass(frozen=True, slots=True)
class Exclusion:
    """How many of the candidates cannot be used now for one cause."""

    cause: ExclusionCause
    nodes: int


@dataclass(frozen=True, slots=True)
class NotEnoughNodes:
    """The job fits the cluster, not what is free: ``free`` of ``candidates`` can take a pod now,
    all at once on the ``constraints``. ``role`` is the one that does not fit, in a job of several;
    if ``is_beside_roles``, it would fit without the job's other roles.

    ``best_domain`` is the domain with the most such nodes (``best_free``) of the finest level that
    nodes share, its labels from the coarsest level on joined by a slash; both names are empty where
    nodes share none. ``rails`` are there where they must be aligned. ``unmatched`` nodes match the
    selector and not the node affinity.
    """

    need: int
    per_node: AmountPairs
    candidates: int
    free: int
    best_level: str
    best_domain: str
    best_free: int
    excluded: tuple[Exclusion, ...]
    unmatched: int = 0
    constraints: TopologyConstraints = NO_CONSTRAINTS
    rails: RailsShort | None = None
    role: str = ""
    is_beside_roles: bool = False


@dataclass(frozen=True, slots=True)
class BlockedByReservation:
    """There is room for this job, but waiting jobs ahead of it have a claim on those nodes.

    ``position`` counts from 1 among the waiting jobs that can run; ``first`` is namespace/name of
    the first of them with a claim on a node this job could use, which needs ``first_need`` nodes
    and has ``first_free``.
    """

    position: int
    first: str
    first_need: int
    first_free: int
    need: int
    free: int


@dataclass(frozen=True, slots=True)
class BindingBacklog:
    """There is room for this job's ``need`` pods, and ``pods`` of gangs decided before it are not
    bound yet; so many are placed, made and bound at a time."""

    need: int
    pods: int


@dataclass(frozen=True, slots=True)
class LedgerFull:
    """There are nodes for this job, but the ledger has no room to list its ``need`` nodes.

    Its entry takes about ``size`` bytes, entries of attempts that are ending leave ``free``, the
    whole ledger has ``limit``: if ``size`` is larger than that, the job can never start so."""

    need: int
    size: int
    free: int
    limit: int

    @property
    def passes(self) -> bool:
        """Whether there is room once other attempts have ended."""
        return self.size <= self.limit


@dataclass(frozen=True, slots=True)
class InternalError:
    """Handling the job raised this ``error``; it is handled again after a back-off."""

    error: str


@dataclass(frozen=True, slots=True)
class TooLarge:
    """The job's spec has ``size`` bytes of JSON, more than ``limit``; ``part`` of it, a path, has
    ``part_size``. The operator gives this reason."""

    size: int
    limit: int
    part: str
    part_size: int


@dataclass(frozen=True, slots=True)
class NotEvaluated:
    """No cycle has evaluated the job yet: it is at this ``position`` of the queue, from 1, and one
    cycle evaluates only so many jobs (``queue_window``)."""

    position: int


Reason = (
    NotEvaluated
    | QueueMissing
    | InternalError
    | PriorityClassMissing
    | PodNamesTaken
    | TierMissing
    | NeverFits
    | NotEnoughNodes
    | BlockedByReservation
    | BindingBacklog
    | LedgerFull
    | TooLarge
)


HELD_REASONS = (PriorityClassMissing, PodNamesTaken, InternalError, TooLarge)
"""Reasons that keep a job out of the queue; none of them is one to be in it."""


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
