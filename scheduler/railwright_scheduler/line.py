"""The scheduling queue: which jobs start now, and which nodes the others reserve.

``evaluate`` decides about one job and changes nothing; ``apply`` takes over what was decided, so a
job whose evaluation raises leaves no trace in what later jobs see.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from railwright_scheduler import fit, placement, ranks
from railwright_scheduler.admission import Admission
from railwright_scheduler.budget import PLACEMENT_WORK, WorkBudget
from railwright_scheduler.cluster import Capacity, Cluster, Ints, Mask
from railwright_scheduler.decisions import (
    Admit,
    Behind,
    GangsAhead,
    LedgerFull,
    NotEnoughNodes,
    Reason,
)
from railwright_scheduler.fit import Shape
from railwright_scheduler.isolation import Isolation
from railwright_scheduler.placement import Limits
from railwright_scheduler.reservation import NONE, Reservations
from railwright_scheduler.selection import NodeSelector
from railwright_scheduler.snapshot import Job, Running
from railwright_scheduler.traffic import Traffic

EFFORT_MAX = 512
"""What it may take to place the gangs of one decision, in nodes; one alone may take more. About two
seconds' worth."""

_NEVER = np.iinfo(np.int64).max

WAYS_MAX = 4
"""Of the ways in which adapters are on rails, so many are looked at for a start: those in which a
job has the most free nodes. Each costs as much as a job of its own; a site whose nodes are cabled
by hand may have one a node."""


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """The job starts: ``nodes`` (columns) are in the order of its ranks. To choose them took so
    much ``work``."""

    job: Job
    shape: Shape
    nodes: Ints
    admit: Admit
    work: int


@dataclass(frozen=True, slots=True, eq=False)
class Hold:
    """The job waits, with these ``reserved`` nodes (columns).

    ``reason`` is None for a job that only waits for its own pods to go; ``free`` is how many nodes
    it could have now but for the others. To decide so took so much ``work``.
    """

    job: Job
    shape: Shape
    reserved: Ints
    reason: Reason | None
    free: int
    work: int


class Line:
    """What jobs have taken and reserved so far in one cycle."""

    def __init__(
        self,
        cluster: Cluster,
        running: Iterable[Running] = (),
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
        self._usable: dict[int, Mask] = {}
        self._missing: dict[tuple[int, Limits], NotEnoughNodes] = {}
        self._free: dict[tuple[int, Limits], int] = {}
        self._refused: dict[tuple[int, Limits], int] = {}
        self._first: dict[tuple[int, Limits], int | None] = {}
        self.starts = self._effort = 0
        self._name_length = max((len(node.name) for node in cluster.nodes), default=0)
        self._work_left = PLACEMENT_WORK
        self._is_full = False

    @property
    def reservations(self) -> Mapping[str, tuple[str, ...]]:
        """The names of the nodes that each waiting job has reserved, by its UID."""
        return self._reservations.by_job

    def evaluate(
        self, job: Job, shape: Shape, ways: Sequence[Limits], largest: Limits
    ) -> Start | Hold:
        """Decide about one job that the cluster could hold; ``ways`` are the topology constraints
        that it may start under, ``largest`` the one with the largest capacity."""
        work = WorkBudget(self._work_left)
        if len(ways) == 1 and job.num_nodes >= self._refused.get((shape.index, largest), _NEVER):
            # What is free beside reservations only shrinks in a cycle.
            reason = self._why_not(job, shape, largest)
            return self._hold(job, shape, ways, largest, work, reason=reason)
        freest = self._freest(shape, ways)
        limits = self._selector.best_way(job, freest, lambda way: self._allowed(shape, way), work)
        allowed = self._allowed(shape, limits)
        if placement.capacity(self._cluster.domains, allowed, limits) < job.num_nodes:
            if len(ways) == 1:
                self._refused[shape.index, limits] = job.num_nodes
            reason = self._why_not(job, shape, largest)
            return self._hold(job, shape, ways, largest, work, reason=reason)
        effort = ranks.effort(job)
        if self._is_full or (effort and self._effort and self._effort + effort > EFFORT_MAX):
            ahead = GangsAhead(job.num_nodes, self._admission.pods)
            return Hold(job, shape, NONE, ahead, 0, work.spent)
        refusal = self._admission.before(job, self._name_length)
        if refusal is None:
            start = self._place(job, shape, allowed, limits, work)
            refusal = self._admission.after(job, start.admit)
            if refusal is None:
                return start
        if isinstance(refusal, LedgerFull) and refusal.passes:
            return self._hold(job, shape, ways, largest, work, reason=refusal)
        return Hold(job, shape, NONE, refusal, 0, work.spent)

    def _place(
        self, job: Job, shape: Shape, allowed: Mask, limits: Limits, work: WorkBudget
    ) -> Start:
        placed = self._selector.select(job, allowed, limits, work)
        names = tuple(self._cluster.nodes[column].name for column in placed.nodes)
        spans = self._cluster.domains.spans(np.sort(placed.nodes))
        merits = placed.merits
        if merits is not None and work.is_cut:
            merits = replace(merits, over_budget=True)
        admit = Admit(job.uid, job.attempt, names, spans, merits)
        return Start(job, shape, placed.nodes, admit, work.spent)

    def hold(self, job: Job, shape: Shape, ways: Sequence[Limits], largest: Limits) -> Hold:
        """Let a job wait for its own pods to go, with its reservation."""
        return self._hold(job, shape, ways, largest, WorkBudget(self._work_left), reason=None)

    def _hold(
        self,
        job: Job,
        shape: Shape,
        ways: Sequence[Limits],
        largest: Limits,
        work: WorkBudget,
        *,
        reason: Reason | None,
    ) -> Hold:
        """Let a job wait that could run but may not start, with its reservation."""
        nodes = self._reservations.choose(job, shape, ways, work, returns=reason is None)
        return Hold(job, shape, nodes, reason, self._free_for(shape, largest), work.spent)

    def apply(self, verdict: Start | Hold) -> None:
        """Take over what was decided."""
        self._work_left -= verdict.work
        if isinstance(verdict, Start) or len(verdict.reserved):
            self._first.clear()
        if isinstance(verdict, Start):
            self._start(verdict)
        elif isinstance(verdict.reason, GangsAhead):
            # No job overtakes the first one that has to wait for the API server, however small.
            self._is_full = True
        else:
            if isinstance(verdict.reason, LedgerFull):
                self._admission.refuse(verdict.reason)
            position = len(self._waiting)
            self._waiting.append((verdict.job, verdict.free))
            if len(verdict.reserved):
                self._reservations.add(
                    verdict.job, verdict.shape, verdict.reserved, position=position
                )

    def keep(self, job: Job, reason: Reason | None) -> None:
        """Let a job wait that this cycle does not evaluate, with the reservation and the ``reason``
        of the last cycle."""
        if job.uid in self._reservations.previous:
            self._reservations.keep(job, position=len(self._waiting))
        elif not isinstance(reason, NotEnoughNodes | Behind):
            return
        free = reason.free if isinstance(reason, NotEnoughNodes | Behind) else 0
        self._waiting.append((job, free))

    def settle(self) -> None:
        """Take over all that was kept, before a job behind it is evaluated."""
        self._reservations.settle()

    def _start(self, start: Start) -> None:
        job, shape = start.job, start.shape
        self.starts += 1
        self._effort += ranks.effort(job)
        self._admission.take(start.admit)
        if job.workload is not None and job.num_nodes > 1:
            running = Running(job.workload, job.ranks_per_node, start.admit.nodes, job.uid)
            self._traffic.add(running)
        self._capacity.take(start.nodes, shape.rows, shape.need)
        self._usable.clear()
        self._free.clear()
        self._missing.clear()

    def _freest(self, shape: Shape, ways: Sequence[Limits]) -> Sequence[Limits]:
        if len(ways) <= WAYS_MAX:
            return ways
        free = self._cluster.by_rails(self._allowed(shape, replace(ways[0], rails=0)))
        freest = sorted(ways, key=lambda way: -int(free[way.rails]))[:WAYS_MAX]
        return [way for way in ways if way in freest]

    def _allowed(self, shape: Shape, limits: Limits) -> Mask:
        """The nodes that it could have now, under these constraints, beside what is reserved."""
        beside = self._capacity.holds_beside(shape.rows, shape.need)
        return self._cluster.meant(self._usable_by(shape) & beside, limits)

    def _why_not(self, job: Job, shape: Shape, limits: Limits) -> NotEnoughNodes | Behind:
        free = self._free_for(shape, limits)
        position = self._first_position(shape, limits) if free >= job.num_nodes else None
        if position is None:
            missing = self._not_enough(shape, self._usable_by(shape), limits)
            return replace(missing, need=job.num_nodes, terms=job.terms)
        first, first_free = self._waiting[position]
        return Behind(
            position=len(self._waiting) + 1,
            first=f"{first.namespace}/{first.name}",
            first_need=first.num_nodes,
            first_free=first_free,
            need=job.num_nodes,
            free=free,
        )

    def _first_position(self, shape: Shape, limits: Limits) -> int | None:
        """The position of the first job with a reservation that keeps this shape from a node."""
        key = shape.index, limits
        if key not in self._first:
            usable = self._cluster.meant(self._usable_by(shape), limits)
            beside = self._allowed(shape, limits)
            self._first[key] = self._reservations.first_position(usable & ~beside)
        return self._first[key]

    def _usable_by(self, shape: Shape) -> Mask:
        """The nodes that could take a pod of this shape now, whoever reserved them."""
        usable = self._usable.get(shape.index)
        if usable is None:
            usable = shape.open & self._capacity.holds(shape.rows, shape.need)
            self._usable[shape.index] = usable
        return usable

    def _free_for(self, shape: Shape, limits: Limits) -> int:
        """How many of those one gang could have."""
        key = (shape.index, limits)
        if key not in self._free:
            usable = self._cluster.meant(self._usable_by(shape), limits)
            self._free[key] = placement.capacity(self._cluster.domains, usable, limits)
        return self._free[key]

    def _not_enough(self, shape: Shape, usable: Mask, limits: Limits) -> NotEnoughNodes:
        """What the shape lacks, until the next job starts."""
        missing = self._missing.get((shape.index, limits))
        if missing is None:
            missing = fit.not_enough_nodes(self._cluster, shape, usable, limits)
            self._missing[shape.index, limits] = missing
        return missing
