"""The one decision: every job in turn starts whole, or waits and is told why.

``decide`` is a pure function of the snapshot's contents. The order in which nodes, jobs and queues
are listed in it, and the hash seed of the process, do not reach the answer. What earlier decisions
computed does only where ``TRAFFIC_WORK`` is too little for all jobs that run (``traffic``).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from railwright_scheduler import cluster, order, terms
from railwright_scheduler.admission import Admission
from railwright_scheduler.budget import TRAFFIC_WORK, WorkBudget
from railwright_scheduler.cluster import Cluster
from railwright_scheduler.decisions import (
    Admit,
    Decisions,
    GangsAhead,
    InternalError,
    NeverFits,
    NotEvaluated,
    QueueMissing,
    Reason,
    TierMissing,
    Wait,
)
from railwright_scheduler.fit import Shape, Shapes
from railwright_scheduler.isolation import Isolation, Stage
from railwright_scheduler.line import Hold, Line, Start
from railwright_scheduler.placement import Limits
from railwright_scheduler.queue_window import JOB, EvaluationWork, QueueWindow, evaluation_work
from railwright_scheduler.snapshot import Job, Snapshot, Terms


def decide(
    snapshot: Snapshot,
    isolation: Isolation | None = None,
    admission: Admission | None = None,
    traffic_work: WorkBudget | None = None,
    reasons: Mapping[str, Reason] = MappingProxyType({}),
) -> Decisions:
    """Decide for every job of the snapshot whether it starts now, and where.

    Of more jobs than one cycle may evaluate (``queue_window``) the others wait for the reason that
    they have in ``reasons``, those of the last cycle, and keep what they have reserved.

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
    window = QueueWindow(snapshot.queue_round)
    cycle = _Cycle(evaluation, line, isolation, window)
    returning = frozenset(job.uid for job in snapshot.returning)
    admitted: list[Admit] = []
    waiting: list[Wait] = []
    position = 1
    for job in order.by_turn((*snapshot.jobs, *snapshot.returning)):
        returns = job.uid in returning
        verdict: Start | Reason | None
        if isolation.error(Stage.DECISION, job.uid):
            verdict = None
        elif window.admits(order.position(job)):
            verdict = cycle.evaluate(job, returns=returns)
        else:
            verdict = reasons.get(job.uid, NotEvaluated(position))
            if isinstance(verdict, NotEvaluated):
                verdict = NotEvaluated(position)
            cycle.keep(job, verdict)
        error = isolation.error(Stage.DECISION, job.uid)
        position += not error
        if isinstance(verdict, Start):
            admitted.append(verdict.admit)
        elif not returns:
            reason = InternalError(error) if error or verdict is None else verdict
            waiting.append(Wait(job.uid, reason))
    return Decisions(tuple(admitted), tuple(waiting), line.reservations, window.following)


@dataclass(frozen=True, slots=True)
class _Cycle:
    """Takes one job after the other, each in isolation."""

    evaluation: _Evaluation
    line: Line
    isolation: Isolation
    window: QueueWindow

    def evaluate(self, job: Job, *, returns: bool) -> Start | Reason | None:
        """The job's start, or why it waits; None if its evaluation raises, or for one that
        ``returns``."""
        self.line.settle()
        evaluate = functools.partial(self.evaluation.evaluate, job, returns=returns)
        evaluated = self.isolation.run(Stage.DECISION, job.uid, evaluate, otherwise=None)
        if evaluated is None:
            return None
        verdict, work = evaluated
        self.window.count(work)
        if isinstance(verdict, Start | Hold):
            self.line.apply(verdict)
        if not isinstance(verdict, Hold):
            return verdict
        if isinstance(verdict.reason, GangsAhead):
            self.window.block(order.position(job))
        return verdict.reason

    def keep(self, job: Job, reason: Reason) -> None:
        """Let the job wait without evaluating it, with its reservation."""
        keep = functools.partial(self.line.keep, job, reason)
        self.isolation.run(Stage.RESERVATION, job.uid, keep, otherwise=None)


@dataclass(frozen=True, slots=True)
class _Evaluation:
    """What one job after the other is evaluated against."""

    queues: tuple[str, ...]
    floor: Cluster
    shapes: Shapes
    line: Line
    limits: dict[Terms, Limits | TierMissing] = field(default_factory=dict)
    aligned: dict[Limits, Sequence[Limits]] = field(default_factory=dict)

    def evaluate(self, job: Job, *, returns: bool) -> tuple[Start | Hold | Reason, EvaluationWork]:
        """The job's verdict, and the work that it took."""
        _check(job)
        if job.queue not in self.queues:
            missing = QueueMissing(queue=job.queue, existing=self.queues)
            return missing, EvaluationWork(JOB)
        limits = self._limits(job.terms)
        if isinstance(limits, TierMissing):
            return limits, EvaluationWork(JOB)
        shape = self.shapes.of(job)
        ways = self._ways(limits) if job.terms.aligned else [limits]
        verdict = self._verdict(job, shape, ways, returns=returns)
        work = evaluation_work(job, shape, ways, verdict, self.floor, starts=self.line.starts)
        return verdict, work

    def _verdict(
        self, job: Job, shape: Shape, ways: Sequence[Limits], *, returns: bool
    ) -> Start | Hold | NeverFits:
        largest = max(ways, key=lambda way: self.shapes.capacity(shape, way))
        if self.shapes.capacity(shape, largest) < job.num_nodes:
            return self.shapes.never_fits(job, shape, largest)
        if returns:
            return self.line.hold(job, shape, ways, largest)
        return self.line.evaluate(job, shape, ways, largest)

    def _limits(self, asked: Terms) -> Limits | TierMissing:
        if asked not in self.limits:
            self.limits[asked] = terms.limits(asked, self.floor)
        return self.limits[asked]

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
