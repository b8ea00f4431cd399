"""The scheduling queue: which jobs start now, and which nodes the others reserve.

``evaluate`` decides about one job and changes nothing; ``apply`` applies the verdict. So a job
whose evaluation raises does not affect later jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from railwright_scheduler import placement
from railwright_scheduler.budget import PLACEMENT_WORK, WorkBudget
from railwright_scheduler.cluster import Capacity, Cluster, Ints, Mask
from railwright_scheduler.isolation import Isolation
from railwright_scheduler.model.decisions import (
    Admit,
    BindingBacklog,
    BlockedByReservation,
    LedgerFull,
    NotEnoughNodes,
    Reason,
)
from railwright_scheduler.model.snapshot import Job, RunningJob
from railwright_scheduler.placement import ResolvedConstraints
from railwright_scheduler.policy import feasibility, ranks
from railwright_scheduler.policy.admission import Admission
from railwright_scheduler.policy.feasibility import SchedulingSignature
from railwright_scheduler.policy.link_traffic import Traffic
from railwright_scheduler.policy.reservation import NONE, Reservations
from railwright_scheduler.policy.selection import NodeSelector

EFFORT_MAX = 512
"""What it may take to place the gangs of one decision, in nodes; one alone may take more. About two
seconds' worth."""

_NEVER = np.iinfo(np.int64).max

WAYS_MAX = 4
"""Rail orders that are evaluated for a start: those in which a job has the most free nodes. Each
costs as much as a job of its own, and a site that is cabled by hand may have one for each node."""


@dataclass(frozen=True, slots=True, eq=False)
class StartVerdict:
    """The job starts: ``nodes`` (columns) are in the order of its ranks. ``work`` is what their
    selection took."""

    job: Job
    signature: SchedulingSignature
    nodes: Ints
    admit: Admit
    work: int


@dataclass(frozen=True, slots=True, eq=False)
class WaitVerdict:
    """The job waits, with these ``reserved`` nodes (columns).

    ``reason`` is None for a job that only waits for its own pods to end; ``free`` is how many nodes
    it could have now without the reservations of others. ``work`` is what this verdict took.
    """

    job: Job
    signature: SchedulingSignature
    reserved: Ints
    reason: Reason | None
    free: int
    work: int


class SchedulingQueue:
    """What jobs have taken and reserved so far in this cycle."""

    def __init__(
        self,
        cluster: Cluster,
        running: Iterable[RunningJob] = (),
        *,
        reserved: Mapping[str, tuple[str, ...]],
        isolation: Isolation,
        admission: Admission,
        traffic_work: WorkBudget,
    ) -> None:
        self._admission = admission
        self._cluster = cluster
        self._capacity = Capacity(cluster)
        self._traffic = Traffic(cluster, running, isolation, traffic_work)
        self._selector = NodeSelector(cluster, self._capacity, self._traffic)
        self._reservations = Reservations(cluster, self._capacity, reserved)
        self._waiting: list[tuple[Job, int]] = []
        self._available: dict[int, Mask] = {}
        self._missing: dict[tuple[int, ResolvedConstraints], NotEnoughNodes] = {}
        self._free: dict[tuple[int, ResolvedConstraints], int] = {}
        self._refused: dict[tuple[int, ResolvedConstraints], int] = {}
        self._first: dict[tuple[int, ResolvedConstraints], int | None] = {}
        self.starts = self._effort = 0
        self._name_length = max((len(node.name) for node in cluster.nodes), default=0)
        self._work_left = PLACEMENT_WORK
        self._is_full = False

    @property
    def reservations(self) -> Mapping[str, tuple[str, ...]]:
        """The names of the nodes that each waiting job has reserved, by its UID."""
        return self._reservations.by_job

    def evaluate(
        self,
        job: Job,
        signature: SchedulingSignature,
        ways: Sequence[ResolvedConstraints],
        largest: ResolvedConstraints,
    ) -> StartVerdict | WaitVerdict:
        """Decide about one job that the cluster could hold; ``ways`` are the topology constraints
        that it may start under, ``largest`` the one with the largest capacity."""
        work = WorkBudget(self._work_left)
        if len(ways) == 1 and job.num_nodes >= self._refused.get(
            (signature.index, largest), _NEVER
        ):
            # What is free beside reservations only shrinks in a cycle.
            reason = self._why_not(job, signature, largest)
            return self._hold(job, signature, ways, largest, work, reason=reason)
        freest = self._freest(signature, ways)
        limits = self._selector.best_way(
            job, freest, lambda way: self._allowed(signature, way), work
        )
        allowed = self._allowed(signature, limits)
        if placement.capacity(self._cluster.domains, allowed, limits) < job.num_nodes:
            if len(ways) == 1:
                self._refused[signature.index, limits] = job.num_nodes
            reason = self._why_not(job, signature, largest)
            return self._hold(job, signature, ways, largest, work, reason=reason)
        effort = ranks.effort(job)
        if self._is_full or (effort and self._effort and self._effort + effort > EFFORT_MAX):
            ahead = BindingBacklog(job.num_nodes, self._admission.pods)
            return WaitVerdict(job, signature, NONE, ahead, 0, work.spent)
        refusal = self._admission.before(job, self._name_length)
        if refusal is None:
            start = self._place(job, signature, allowed, limits, work)
            refusal = self._admission.after(job, start.admit)
            if refusal is None:
                return start
        if isinstance(refusal, LedgerFull) and refusal.passes:
            return self._hold(job, signature, ways, largest, work, reason=refusal)
        return WaitVerdict(job, signature, NONE, refusal, 0, work.spent)

    def _place(
        self,
        job: Job,
        signature: SchedulingSignature,
        allowed: Mask,
        limits: ResolvedConstraints,
        work: WorkBudget,
    ) -> StartVerdict:
        placed = self._selector.select(job, allowed, limits, work)
        names = tuple(self._cluster.nodes[column].name for column in placed.nodes)
        spans = self._cluster.domains.spans(np.sort(placed.nodes))
        score = placed.score
        if score is not None and work.is_cut:
            score = replace(score, over_budget=True)
        admit = Admit(job.uid, job.attempt, names, spans, score)
        return StartVerdict(job, signature, placed.nodes, admit, work.spent)

    def reserve_for_return(
        self,
        job: Job,
        signature: SchedulingSignature,
        ways: Sequence[ResolvedConstraints],
        largest: ResolvedConstraints,
    ) -> WaitVerdict:
        """Let a job wait for its own pods to go, with its reservation."""
        return self._hold(job, signature, ways, largest, WorkBudget(self._work_left), reason=None)

    def _hold(
        self,
        job: Job,
        signature: SchedulingSignature,
        ways: Sequence[ResolvedConstraints],
        largest: ResolvedConstraints,
        work: WorkBudget,
        *,
        reason: Reason | None,
    ) -> WaitVerdict:
        """Let a job wait that could run but may not start, with its reservation."""
        nodes = self._reservations.choose(job, signature, ways, work, returns=reason is None)
        return WaitVerdict(
            job, signature, nodes, reason, self._free_for(signature, largest), work.spent
        )

    def apply(self, verdict: StartVerdict | WaitVerdict) -> None:
        """Take over what was decided."""
        self._work_left -= verdict.work
        if isinstance(verdict, StartVerdict) or len(verdict.reserved):
            self._first.clear()
        if isinstance(verdict, StartVerdict):
            self._start(verdict)
        elif isinstance(verdict.reason, BindingBacklog):
            # No job overtakes the first one that has to wait for the API server, however small.
            self._is_full = True
        else:
            if isinstance(verdict.reason, LedgerFull):
                self._admission.refuse(verdict.reason)
            position = len(self._waiting)
            self._waiting.append((verdict.job, verdict.free))
            if len(verdict.reserved):
                self._reservations.add(
                    verdict.job, verdict.signature, verdict.reserved, position=position
                )

    def keep(self, job: Job, reason: Reason | None) -> None:
        """Let a job wait that this cycle does not evaluate, with the reservation and the ``reason``
        of the last cycle."""
        if job.uid in self._reservations.previous:
            self._reservations.keep(job, position=len(self._waiting))
        elif not isinstance(reason, NotEnoughNodes | BlockedByReservation):
            return
        free = reason.free if isinstance(reason, NotEnoughNodes | BlockedByReservation) else 0
        self._waiting.append((job, free))

    def settle(self) -> None:
        """Take over all that was kept, before a job behind it is evaluated."""
        self._reservations.settle()

    def _start(self, start: StartVerdict) -> None:
        job, signature = start.job, start.signature
        self.starts += 1
        self._effort += ranks.effort(job)
        self._admission.take(start.admit)
        if job.workload is not None and job.num_nodes > 1:
            running = RunningJob(job.workload, job.ranks_per_node, start.admit.nodes, job.uid)
            self._traffic.add(running)
        self._capacity.take(start.nodes, signature.rows, signature.need)
        self._available.clear()
        self._free.clear()
        self._missing.clear()

    def _freest(
        self, signature: SchedulingSignature, ways: Sequence[ResolvedConstraints]
    ) -> Sequence[ResolvedConstraints]:
        if len(ways) <= WAYS_MAX:
            return ways
        free = self._cluster.by_rails(self._allowed(signature, replace(ways[0], rails=0)))
        freest = sorted(ways, key=lambda way: -int(free[way.rails]))[:WAYS_MAX]
        return [way for way in ways if way in freest]

    def _allowed(self, signature: SchedulingSignature, limits: ResolvedConstraints) -> Mask:
        """The nodes that it could have now, under these constraints, beside what is reserved."""
        beside = self._capacity.holds_unreserved(signature.rows, signature.need)
        return self._cluster.meant(self._available_to(signature) & beside, limits)

    def _why_not(
        self, job: Job, signature: SchedulingSignature, limits: ResolvedConstraints
    ) -> NotEnoughNodes | BlockedByReservation:
        free = self._free_for(signature, limits)
        position = self._first_position(signature, limits) if free >= job.num_nodes else None
        if position is None:
            missing = self._not_enough(signature, self._available_to(signature), limits)
            return replace(missing, need=job.num_nodes, constraints=job.constraints)
        first, first_free = self._waiting[position]
        return BlockedByReservation(
            position=len(self._waiting) + 1,
            first=f"{first.namespace}/{first.name}",
            first_need=first.num_nodes,
            first_free=first_free,
            need=job.num_nodes,
            free=free,
        )

    def _first_position(
        self, signature: SchedulingSignature, limits: ResolvedConstraints
    ) -> int | None:
        """The position of the first job whose reservation blocks a node for this signature."""
        key = signature.index, limits
        if key not in self._first:
            available = self._cluster.meant(self._available_to(signature), limits)
            beside = self._allowed(signature, limits)
            self._first[key] = self._reservations.first_position(available & ~beside)
        return self._first[key]

    def _available_to(self, signature: SchedulingSignature) -> Mask:
        """The nodes that could take a pod of this signature now, reserved or not."""
        available = self._available.get(signature.index)
        if available is None:
            available = signature.open & self._capacity.holds(signature.rows, signature.need)
            self._available[signature.index] = available
        return available

    def _free_for(self, signature: SchedulingSignature, limits: ResolvedConstraints) -> int:
        """How many of those one gang could have."""
        key = (signature.index, limits)
        if key not in self._free:
            available = self._cluster.meant(self._available_to(signature), limits)
            self._free[key] = placement.capacity(self._cluster.domains, available, limits)
        return self._free[key]

    def _not_enough(
        self, signature: SchedulingSignature, available: Mask, limits: ResolvedConstraints
    ) -> NotEnoughNodes:
        """What the signature lacks, until the next job starts."""
        missing = self._missing.get((signature.index, limits))
        if missing is None:
            missing = feasibility.not_enough_nodes(self._cluster, signature, available, limits)
            self._missing[signature.index, limits] = missing
        return missing
