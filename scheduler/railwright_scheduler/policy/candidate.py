"""The contract of the stages of a decision: a candidate in, the same one stage further or refused
out.

A stage changes nothing. What the jobs before this one took and reserved is changed by
``SchedulingQueue`` alone, once a verdict is final. So a job whose evaluation raises does not affect
later jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple, Protocol

from railwright_scheduler.arrays import Ints, Mask
from railwright_scheduler.budget import WorkBudget
from railwright_scheduler.cluster import PodRequest, Taken
from railwright_scheduler.model.decisions import Admit
from railwright_scheduler.model.reasons import Reason
from railwright_scheduler.model.shortages import AmountPairs
from railwright_scheduler.model.snapshot import Job, Role
from railwright_scheduler.placement.constraints import ResolvedConstraints
from railwright_scheduler.policy.mappings import RequestedMapping


@dataclass(frozen=True, slots=True)
class SchedulingSignature:
    """The request of a role on each node, and the nodes that can satisfy it.

    Each mask is a subset of the one before: nodes ``matched`` by the selector and the node affinity
    (by the selector alone ``unmatched`` more); without an untolerated lasting taint
    (``tolerated``); ``candidates``, large enough, healthy or not; ``healthy``, available or
    recently lost, and without any untolerated taint now; ``available``, of these the ones that are.
    ``index`` numbers the signatures of a decision.
    """

    index: int
    per_node: AmountPairs
    request: PodRequest
    matched: Mask
    unmatched: int
    tolerated: Mask
    candidates: Mask
    candidates_count: int
    healthy: Mask
    available: Mask


class RoleDemand(NamedTuple):
    """A role that is evaluated for a start: ``ways`` are the topology constraints that it may start
    under, one for each rail order, ``largest`` the one with the largest capacity."""

    role: Role
    signature: SchedulingSignature
    ways: Sequence[ResolvedConstraints]
    largest: ResolvedConstraints

    @property
    def any_rails(self) -> ResolvedConstraints:
        """The constraints whatever the rail order."""
        return self.largest._replace(rails=0) if self.largest.rails else self.largest

    def taken(self, nodes: Ints) -> Taken:
        """The capacity that its pods take on these nodes."""
        return Taken(nodes, self.signature.request)


class Effect(Enum):
    """What a refused job does to those behind it."""

    NONE = auto()
    """They start as if it were not there."""
    RESERVES = auto()
    """They start beside the nodes that it reserves, if there are any."""
    BLOCKS = auto()
    """None of them starts in this cycle, however small."""


class Refusal(NamedTuple):
    """Why a job does not start; ``reason`` is None for one that waits for its own pods to go."""

    reason: Reason | None
    effect: Effect = Effect.NONE


class Candidate(NamedTuple):
    """A job, and what the stages so far found for each of its roles. (A tuple, as are other values
    that each job makes: to make or copy a dataclass takes twice the time.)

    A job that ``awaits_own_pods`` waits only for these to go. ``ways`` are the constraints that
    each role may start under, ``demands`` have what each requests, ``limits`` the constraints under
    which each could start now by itself. ``nodes`` (columns) of each role are in the order of its
    pods; ``admit`` is the start on these. The stages end at a ``refusal``. ``reserved`` are the
    nodes to reserve for each role, empty if there are none; None where no stage looked for them.
    ``mapping`` is what it waits for, if it waits for that alone.
    """

    job: Job
    awaits_own_pods: bool = False
    ways: Sequence[Sequence[ResolvedConstraints]] = ()
    demands: Sequence[RoleDemand] = ()
    limits: Sequence[ResolvedConstraints] = ()
    nodes: tuple[Ints, ...] = ()
    admit: Admit | None = None
    refusal: Refusal | None = None
    reserved: tuple[Ints, ...] | None = None
    mapping: RequestedMapping | None = None

    def refused(self, reason: Reason | None, effect: Effect = Effect.NONE) -> Candidate:
        """The same candidate, refused."""
        return self._replace(refusal=Refusal(reason, effect))


class DecisionStage(Protocol):
    """One stage of a decision."""

    def check(self, candidate: Candidate, work: WorkBudget) -> Candidate:
        """The candidate with what this stage found. Spends the work of searches. Raises ValueError
        for an invalid job."""
