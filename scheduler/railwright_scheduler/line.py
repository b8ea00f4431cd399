"""The scheduling queue: which jobs start now, and which nodes the others reserve.

``evaluate`` decides about one job and changes nothing; ``apply`` takes over what was decided, so a
job whose evaluation raises leaves no trace in what later jobs see.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from railwright_scheduler import fit, placement, ranks
from railwright_scheduler.cluster import Capacity, Cluster, Ints, Mask
from railwright_scheduler.decisions import Admit, Behind, GangsAhead, NotEnoughNodes, Reason
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


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """The job starts: ``nodes`` (columns) are in the order of its ranks."""

    job: Job
    shape: Shape
    nodes: Ints
    admit: Admit


@dataclass(frozen=True, slots=True, eq=False)
class Hold:
    """The job waits, with these ``reserved`` nodes (columns).

    ``reason`` is None for a job that only waits for its own pods to go; ``free`` is how many nodes
    it could have now but for the others.
    """

    job: Job
    shape: Shape
    reserved: Ints
    reason: Reason | None
    free: int


class Line:
    """What jobs have taken and reserved so far in one cycle."""

    def __init__(
        self,
        cluster: Cluster,
        running: Iterable[Running] = (),
        *,
        reserved: Mapping[str, tuple[str, ...]],
        isolation: Isolation,
    ) -> None:
        self._cluster = cluster
        self._capacity = Capacity(cluster)
        self._traffic = Traffic(cluster, running, isolation)
        self._selector = NodeSelector(cluster, self._capacity, self._traffic)
        self._reservations = Reservations(cluster, self._capacity, reserved)
        self._waiting: list[tuple[Job, int]] = []
        self._usable: dict[int, Mask] = {}
        self._missing: dict[tuple[int, Limits], NotEnoughNodes] = {}
        self._free: dict[tuple[int, Limits], int] = {}
        self._effort = 0
        self._pods = 0
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
        limits = self._selector.best_way(job, ways, lambda way: self._allowed(shape, way))
        allowed = self._allowed(shape, limits)
        if placement.capacity(self._cluster.domains, allowed, limits) < job.num_nodes:
            if limits != largest:
                allowed = self._allowed(shape, largest)
            reason = self._why_not(job, shape, largest, allowed)
            return self.hold(job, shape, ways, largest, reason=reason)
        effort = ranks.effort(job)
        if self._is_full or (effort and self._effort and self._effort + effort > EFFORT_MAX):
            return Hold(job, shape, NONE, GangsAhead(job.num_nodes, self._pods), 0)
        placed = self._selector.select(job, allowed, limits)
        names = tuple(self._cluster.nodes[column].name for column in placed.nodes)
        spans = self._cluster.domains.spans(np.sort(placed.nodes))
        admit = Admit(job.uid, job.attempt, names, spans, placed.merits)
        return Start(job, shape, placed.nodes, admit)

    def hold(
        self,
        job: Job,
        shape: Shape,
        ways: Sequence[Limits],
        largest: Limits,
        *,
        reason: Reason | None,
    ) -> Hold:
        """Let a job wait that could run but may not start, with its reservation."""
        nodes = self._reservations.choose(job, shape, ways, returns=reason is None)
        return Hold(job, shape, nodes, reason, self._free_for(shape, largest))

    def apply(self, verdict: Start | Hold) -> None:
        """Take over what was decided."""
        if isinstance(verdict, Start):
            self._start(verdict)
        elif isinstance(verdict.reason, GangsAhead):
            # No job overtakes the first one that has to wait for the API server, however small.
            self._is_full = True
        else:
            position = len(self._waiting)
            self._waiting.append((verdict.job, verdict.free))
            if len(verdict.reserved):
                self._reservations.add(
                    verdict.job, verdict.shape, verdict.reserved, position=position
                )

    def _start(self, start: Start) -> None:
        job, shape = start.job, start.shape
        self._effort += ranks.effort(job)
        self._pods += job.num_nodes
        if job.workload is not None and job.num_nodes > 1:
            running = Running(job.workload, job.ranks_per_node, start.admit.nodes, job.uid)
            self._traffic.add(running)
        self._capacity.take(start.nodes, shape.rows, shape.need)
        self._usable.clear()
        self._free.clear()
        self._missing.clear()

    def _allowed(self, shape: Shape, limits: Limits) -> Mask:
        """The nodes that it could have now, under these constraints, beside what is reserved."""
        beside = self._capacity.holds_beside(shape.rows, shape.need)
        return self._cluster.meant(self._usable_by(shape) & beside, limits)

    def _why_not(
        self, job: Job, shape: Shape, limits: Limits, beside: Mask
    ) -> NotEnoughNodes | Behind:
        free = self._free_for(shape, limits)
        usable = self._cluster.meant(self._usable_by(shape), limits)
        position = self._reservations.first_position(usable & ~beside)
        if free < job.num_nodes or position is None:
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
