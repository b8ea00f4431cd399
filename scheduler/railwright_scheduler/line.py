"""The line of waiting jobs: who may start, and who keeps which nodes for whom.

A job that could run on this cluster, but not now, has a claim on every node it could ever use. Jobs
behind it start only on nodes that nobody ahead has a claim on. So a big job is not starved by a
stream of small ones, and jobs for unlike nodes do not hold each other up. The price is idle nodes
while a big job gathers its own.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from railwright_scheduler import fit, placement
from railwright_scheduler.cluster import Capacity, Cluster, Mask
from railwright_scheduler.decisions import Admit, Behind, NotEnoughNodes
from railwright_scheduler.fit import Shape
from railwright_scheduler.snapshot import Job

_NOBODY = np.iinfo(np.int64).max


class Line:
    """What jobs have taken and claimed so far in one decision."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._capacity = Capacity(cluster)
        self._claimed_by = np.full(len(cluster.nodes), _NOBODY, dtype=np.int64)
        self._claimed: dict[int, bool] = {}
        self._waiting: list[tuple[Job, int]] = []
        self._usable: dict[int, Mask] = {}
        self._missing: dict[int, NotEnoughNodes] = {}

    def start(self, job: Job, shape: Shape) -> Admit | None:
        """Give the job its nodes, if enough of them are free and unclaimed."""
        allowed = self._usable_by(shape) & (self._claimed_by == _NOBODY)
        if np.count_nonzero(allowed) < job.num_nodes:
            return None
        nodes = placement.choose(
            self._cluster.domains, allowed, self._capacity.room, count=job.num_nodes
        )
        self._capacity.take(nodes, shape.rows, shape.need)
        self._usable.clear()
        return Admit(
            job_uid=job.uid,
            attempt=job.attempt,
            nodes=tuple(self._cluster.nodes[column].name for column in nodes),
            spans=self._cluster.domains.spans(nodes),
        )

    def hold(self, job: Job, shape: Shape) -> NotEnoughNodes | Behind:
        """Let a job wait that could run but may not start; from here on it has its claims."""
        usable = self._usable_by(shape)
        free = int(np.count_nonzero(usable))
        reason: NotEnoughNodes | Behind
        if free < job.num_nodes:
            reason = replace(self._not_enough(shape, usable), need=job.num_nodes)
        else:
            reason = self._behind(job, usable, free)
        self._claim(shape)
        self._waiting.append((job, free))
        return reason

    def _usable_by(self, shape: Shape) -> Mask:
        """The nodes that could take a pod of this shape now, whoever has a claim on them."""
        usable = self._usable.get(shape.index)
        if usable is None:
            usable = shape.open & self._capacity.holds(shape.rows, shape.need)
            self._usable[shape.index] = usable
        return usable

    def _not_enough(self, shape: Shape, usable: Mask) -> NotEnoughNodes:
        """What the shape lacks; it stays so, as nobody behind gets what its first job claims."""
        missing = self._missing.get(shape.index)
        if missing is None:
            missing = fit.not_enough_nodes(self._cluster, shape, usable, need=0)
            self._missing[shape.index] = missing
        return missing

    def _behind(self, job: Job, usable: Mask, free: int) -> Behind:
        first, first_free = self._waiting[int(self._claimed_by[usable].min())]
        return Behind(
            position=len(self._waiting) + 1,
            first=f"{first.namespace}/{first.name}",
            first_need=first.num_nodes,
            first_free=first_free,
            need=job.num_nodes,
            free=free,
        )

    def _claim(self, shape: Shape) -> None:
        if shape.index not in self._claimed:
            self._claimed[shape.index] = True
            unclaimed = shape.candidates & (self._claimed_by == _NOBODY)
            self._claimed_by[unclaimed] = len(self._waiting)
