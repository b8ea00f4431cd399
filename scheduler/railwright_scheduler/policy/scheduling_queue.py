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
from railwright_scheduler.cluster import Capacity, Cluster, Ints, Mask, Taken
from railwright_scheduler.isolation import Isolation
from railwright_scheduler.model.decisions import Admit
from railwright_scheduler.model.reasons import (
    BindingBacklog,
    BlockedByReservation,
    LedgerFull,
    Reason,
)
from railwright_scheduler.model.shortages import NotEnoughNodes
from railwright_scheduler.model.snapshot import Job, RunningJob, running_job
from railwright_scheduler.placement import ResolvedConstraints
from railwright_scheduler.policy import feasibility, ranks
from railwright_scheduler.policy.admission import Admission
from railwright_scheduler.policy.feasibility import RoleDemand, SchedulingSignature
from railwright_scheduler.policy.gang_placement import GangPlacer
from railwright_scheduler.policy.gang_search import UnplacedRole
from railwright_scheduler.policy.link_traffic import Traffic
from railwright_scheduler.policy.reservation import Reservations
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
    """The job starts: ``nodes`` (columns) of each role are in the order of its pods. ``work`` is
    what their selection took."""

    job: Job
    demands: Sequence[RoleDemand]
    nodes: tuple[Ints, ...]
    admit: Admit
    work: int


@dataclass(frozen=True, slots=True, eq=False)
class WaitVerdict:
    """The job waits, with the ``reserved`` nodes (columns) of each role, if it has any.

    ``reason`` is None for a job that only waits for its own pods to end; ``free`` is how many nodes
    it could have now without the reservations of others. ``work`` is what this verdict took.
    """

    job: Job
    demands: Sequence[RoleDemand]
    reserved: tuple[Ints, ...]
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
        self._placer = GangPlacer(cluster, self._selector, self._allowed)
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

    def evaluate(self, job: Job, demands: Sequence[RoleDemand]) -> StartVerdict | WaitVerdict:
        """Decide about one job whose roles the cluster could hold."""
        work = WorkBudget(self._work_left)
        chosen: list[ResolvedConstraints] = []
        for demand in demands:
            limits = self._startable_way(demand, work)
            if limits is None:
                return self._hold(job, demands, work, reason=self._why_not(job, demand))
            chosen.append(limits)
        effort = sum(ranks.effort(demand.role) for demand in demands)
        if self._is_full or (effort and self._effort and self._effort + effort > EFFORT_MAX):
            ahead = BindingBacklog(job.num_pods, self._admission.pods)
            return WaitVerdict(job, demands, (), ahead, 0, work.spent)
        refusal: Reason | None = self._admission.before(job, self._name_length)
        if refusal is None:
            start = self._place(job, demands, chosen, work)
            if isinstance(start, UnplacedRole):
                reason = self._why_not_together(job, demands, start)
                return self._hold(job, demands, work, reason=reason)
            refusal = self._admission.after(job, start.admit)
            if refusal is None:
                return start
        if isinstance(refusal, LedgerFull) and refusal.passes:
            return self._hold(job, demands, work, reason=refusal)
        return WaitVerdict(job, demands, (), refusal, 0, work.spent)

    def _startable_way(self, demand: RoleDemand, work: WorkBudget) -> ResolvedConstraints | None:
        """The constraints under which the role, by itself, could start now; None if under none."""
        role, signature, ways = demand.role, demand.signature, demand.ways
        key = signature.index, demand.largest
        if len(ways) == 1 and role.replicas >= self._refused.get(key, _NEVER):
            # What is free beside reservations only shrinks in a cycle.
            return None
        freest = self._freest(signature, ways)
        limits = self._selector.best_way(
            role, freest, lambda way: self._allowed(signature, way), work
        )
        allowed = self._allowed(signature, limits)
        if placement.capacity(self._cluster.domains, allowed, limits) >= role.replicas:
            return limits
        if len(ways) == 1:
            self._refused[signature.index, limits] = role.replicas
        return None

    def _place(
        self,
        job: Job,
        demands: Sequence[RoleDemand],
        limits: Sequence[ResolvedConstraints],
        work: WorkBudget,
    ) -> StartVerdict | UnplacedRole:
        placed = self._placer.place(demands, limits, work)
        if isinstance(placed, UnplacedRole):
            return placed
        columns = np.concatenate([found.nodes for found in placed])
        names = tuple(self._cluster.nodes[column].name for column in columns)
        spans = self._cluster.domains.spans(np.unique(columns))
        score = next((found.score for found in placed if found.score is not None), None)
        if score is not None and work.is_cut:
            score = replace(score, over_budget=True)
        admit = Admit(job.uid, job.attempt, names, spans, score)
        nodes = tuple(found.nodes for found in placed)
        return StartVerdict(job, demands, nodes, admit, work.spent)

    def reserve_for_return(self, job: Job, demands: Sequence[RoleDemand]) -> WaitVerdict:
        """Let a job wait for its own pods to go, with its reservation."""
        return self._hold(job, demands, WorkBudget(self._work_left), reason=None)

    def _hold(
        self, job: Job, demands: Sequence[RoleDemand], work: WorkBudget, *, reason: Reason | None
    ) -> WaitVerdict:
        """Let a job wait that could run but may not start, with its reservation."""
        nodes = self._reservations.choose(job, demands, work, returns=reason is None)
        free = sum(self._free_for(each.signature, each.largest) for each in demands)
        return WaitVerdict(job, demands, nodes, reason, free, work.spent)

    def apply(self, verdict: StartVerdict | WaitVerdict) -> None:
        """Take over what was decided."""
        self._work_left -= verdict.work
        if isinstance(verdict, StartVerdict) or verdict.reserved:
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
            if verdict.reserved:
                self._reservations.add(
                    verdict.job, verdict.demands, verdict.reserved, position=position
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
        self.starts += 1
        self._effort += sum(ranks.effort(demand.role) for demand in start.demands)
        self._admission.take(start.admit)
        running = running_job(start.job, start.admit.nodes)
        if running is not None:
            self._traffic.add(running)
        for demand, nodes in zip(start.demands, start.nodes, strict=True):
            self._capacity.take(nodes, demand.signature.rows, demand.signature.need)
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

    def _allowed(
        self,
        signature: SchedulingSignature,
        limits: ResolvedConstraints,
        taken: Sequence[Taken] = (),
    ) -> Mask:
        """The nodes that it could have now, under these constraints, beside what is reserved or
        ``taken`` by other roles of its gang."""
        beside = self._capacity.holds_unreserved(signature.rows, signature.need, taken)
        return self._cluster.meant(self._available_to(signature) & beside, limits)

    def _why_not(self, job: Job, demand: RoleDemand) -> NotEnoughNodes | BlockedByReservation:
        """Why this role of the job cannot start, by itself."""
        role, signature, limits = demand.role, demand.signature, demand.largest
        free = self._free_for(signature, limits)
        position = self._first_position(signature, limits) if free >= role.replicas else None
        if position is None:
            return self._short(job, demand)
        first, first_free = self._waiting[position]
        return BlockedByReservation(
            position=len(self._waiting) + 1,
            first=f"{first.namespace}/{first.name}",
            first_need=first.num_pods,
            first_free=first_free,
            need=role.replicas,
            free=free,
        )

    def _why_not_together(
        self, job: Job, demands: Sequence[RoleDemand], unplaced: UnplacedRole
    ) -> NotEnoughNodes:
        """Each role could start by itself, this one not beside the others."""
        short = self._short(job, demands[unplaced.number])
        return replace(short, free=unplaced.free, is_beside_roles=True)

    def _short(self, job: Job, demand: RoleDemand) -> NotEnoughNodes:
        available = self._available_to(demand.signature)
        return replace(
            self._not_enough(demand.signature, available, demand.largest),
            need=demand.role.replicas,
            constraints=demand.role.constraints,
            role=demand.role.name if len(job.roles) > 1 else "",
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
