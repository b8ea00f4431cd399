"""The one decision: every job in turn starts whole, or waits and is told why.

``decide`` is a pure function of the snapshot's contents. The order in which nodes, jobs and queues
are listed in it, and the hash seed of the process, do not reach the answer. What earlier decisions
computed does only where ``TRAFFIC_WORK`` is too little for all jobs that run (``traffic``).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from railwright_scheduler import cluster, order, terms
from railwright_scheduler.admission import Admission
from railwright_scheduler.budget import TRAFFIC_WORK, WorkBudget
from railwright_scheduler.cluster import Cluster
from railwright_scheduler.decisions import (
    Admit,
    Decisions,
    InternalError,
    QueueMissing,
    Reason,
    TierMissing,
    Wait,
)
from railwright_scheduler.fit import Shapes
from railwright_scheduler.isolation import Isolation, Stage
from railwright_scheduler.line import Hold, Line, Start
from railwright_scheduler.placement import Limits
from railwright_scheduler.snapshot import Job, Snapshot


def decide(
    snapshot: Snapshot,
    isolation: Isolation | None = None,
    admission: Admission | None = None,
    traffic_work: WorkBudget | None = None,
) -> Decisions:
    """Decide for every job of the snapshot whether it starts now, and where.

    A job whose evaluation raises waits as InternalError; the others are decided as if it were not
    there. ``isolation`` collects such faults; ``admission`` counts what starts, beside gangs that
    are being bound; ``traffic_work`` is what is left in this scheduling cycle for what running jobs
    send (``traffic``), all of it if None. Raises ValueError, with the field and the value, for a
    snapshot that cannot be: two nodes or jobs of one name, a node's amounts out of range, domains
    that miss a level.
    """
    isolation = Isolation() if isolation is None else isolation
    _check_unique((*snapshot.jobs, *snapshot.returning))
    floor = cluster.of(snapshot)
    line = Line(
        floor,
        snapshot.running,
        reserved=snapshot.reserved,
        isolation=isolation,
        admission=Admission() if admission is None else admission,
        traffic_work=WorkBudget(TRAFFIC_WORK) if traffic_work is None else traffic_work,
    )
    queues = tuple(sorted(set(snapshot.queues)))
    evaluation = _Evaluation(queues, floor, Shapes(floor), line)
    returning = frozenset(job.uid for job in snapshot.returning)
    admitted: list[Admit] = []
    waiting: list[Wait] = []
    for job in order.by_turn((*snapshot.jobs, *snapshot.returning)):
        returns = job.uid in returning
        evaluate = functools.partial(evaluation.evaluate, job, returns=returns)
        verdict = isolation.run(Stage.DECISION, job.uid, evaluate, otherwise=None)
        if isinstance(verdict, Start):
            admitted.append(verdict.admit)
        elif not returns:
            waiting.append(Wait(job.uid, _reason(verdict, job, isolation)))
        if isinstance(verdict, Start | Hold):
            line.apply(verdict)
    return Decisions(tuple(admitted), tuple(waiting), line.reservations)


def _reason(verdict: Hold | Reason | None, job: Job, isolation: Isolation) -> Reason:
    reason = verdict.reason if isinstance(verdict, Hold) else verdict
    return reason or InternalError(isolation.error(Stage.DECISION, job.uid))


@dataclass(frozen=True, slots=True)
class _Evaluation:
    """What one job after the other is evaluated against."""

    queues: tuple[str, ...]
    floor: Cluster
    shapes: Shapes
    line: Line
    aligned: dict[Limits, Sequence[Limits]] = field(default_factory=dict)

    def evaluate(self, job: Job, *, returns: bool) -> Start | Hold | Reason | None:
        _check(job)
        if job.queue not in self.queues:
            return QueueMissing(queue=job.queue, existing=self.queues)
        limits = terms.limits(job.terms, self.floor)
        if isinstance(limits, TierMissing):
            return limits
        shape = self.shapes.of(job)
        ways = self._ways(limits) if job.terms.aligned else [limits]
        largest = max(ways, key=lambda way: self.shapes.capacity(shape, way))
        if self.shapes.capacity(shape, largest) < job.num_nodes:
            return self.shapes.never_fits(job, shape, largest)
        if returns:
            return self.line.hold(job, shape, ways, largest)
        return self.line.evaluate(job, shape, ways, largest)

    def _ways(self, limits: Limits) -> Sequence[Limits]:
        if limits not in self.aligned:
            self.aligned[limits] = terms.alike(limits, self.floor)
        return self.aligned[limits]


def _check_unique(jobs: Iterable[Job]) -> None:
    seen: dict[str, Job] = {}
    for job in jobs:
        if job.uid in seen:
            twin = seen[job.uid]
            raise ValueError(
                f"jobs: uid {job.uid!r} is there twice ({twin.namespace}/{twin.name} and "
                f"{job.namespace}/{job.name}), expected unique uids"
            )
        seen[job.uid] = job


def _check(job: Job) -> None:
    if job.num_nodes < 1:
        raise ValueError(
            f"job {job.namespace}/{job.name}: num_nodes is {job.num_nodes}, expected at least 1"
        )
    if job.terms.segment and job.num_nodes % job.terms.segment:
        raise ValueError(
            f"job {job.namespace}/{job.name}: num_nodes is {job.num_nodes}, expected a "
            f"multiple of its segments of {job.terms.segment}"
        )
