"""Decide about every pending job in queue order: it starts as a complete gang, or waits.

``decide`` is a pure function of the snapshot. Neither the order of nodes, jobs and queues in it nor
the hash seed of the process changes the result. Cached results of earlier cycles do so only if
``TRAFFIC_WORK`` is too little for all running jobs (``link_traffic``).

Stages, in order. The first that returns a reason ends the evaluation of the job in this cycle.

    queue and constraints   the queue exists; topology constraints name levels that exist
    feasibility             the cluster, empty and healthy, could run each role
    free capacity           each role by itself fits on the free nodes that are not reserved
    admission               how much one cycle may start
    selection and ranks     nodes for the whole gang, and the node of each rank; room in the ledger
    reservation             nodes for a job that could run and waits
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from railwright_scheduler import cluster
from railwright_scheduler.budget import TRAFFIC_WORK, WorkBudget
from railwright_scheduler.cluster import Cluster
from railwright_scheduler.isolation import Isolation, Stage
from railwright_scheduler.model.decisions import Admit, Decisions, Wait
from railwright_scheduler.model.reasons import (
    BindingBacklog,
    InternalError,
    NotEvaluated,
    QueueNotFound,
    Reason,
    TierNotFound,
)
from railwright_scheduler.model.shortages import NeverFits
from railwright_scheduler.model.snapshot import Job, Role, Snapshot, TopologyConstraints
from railwright_scheduler.placement import ResolvedConstraints
from railwright_scheduler.policy import constraints, order
from railwright_scheduler.policy.admission import Admission
from railwright_scheduler.policy.feasibility import RoleDemand, SignatureIndex
from railwright_scheduler.policy.queue_window import (
    JOB,
    EvaluationWork,
    QueueWindow,
    evaluation_work,
)
from railwright_scheduler.policy.scheduling_queue import SchedulingQueue, StartVerdict, WaitVerdict


def decide(
    snapshot: Snapshot,
    isolation: Isolation | None = None,
    admission: Admission | None = None,
    traffic_work: WorkBudget | None = None,
    reasons: Mapping[str, Reason] = MappingProxyType({}),
) -> Decisions:
    """Decide for every job of the snapshot whether it starts now, and where.

    If one cycle may not evaluate all jobs (``queue_window``), the others keep their reason from the
    last cycle (``reasons``) and their reservation.

    A job whose evaluation raises waits as InternalError and does not affect the others.
    ``isolation`` collects such faults; ``admission`` counts what starts, beside gangs that are
    being bound; ``traffic_work`` is the remaining work of this cycle for the traffic of running
    jobs (``link_traffic``), all of it if None. Raises ValueError, with the field and the value, for
    an invalid snapshot: two nodes or jobs of one name, a node's amounts out of range, domains that
    miss a level.
    """
    isolation = Isolation() if isolation is None else isolation
    _check_unique((*snapshot.jobs, *snapshot.returning))
    floor = cluster.of(snapshot)
    queue = SchedulingQueue(
        floor,
        snapshot.running,
        reserved=snapshot.reserved,
        isolation=isolation,
        admission=Admission() if admission is None else admission,
        traffic_work=WorkBudget(TRAFFIC_WORK) if traffic_work is None else traffic_work,
    )
    queues = tuple(sorted(set(snapshot.queues)))
    evaluation = _Evaluation(queues, floor, SignatureIndex(floor), queue)
    window = QueueWindow(snapshot.queue_round)
    cycle = _Cycle(evaluation, queue, isolation, window)
    returning = frozenset(job.uid for job in snapshot.returning)
    admitted: list[Admit] = []
    waiting: list[Wait] = []
    position = 1
    for job in order.by_priority((*snapshot.jobs, *snapshot.returning)):
        returns = job.uid in returning
        verdict: StartVerdict | Reason | None
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
        if isinstance(verdict, StartVerdict):
            admitted.append(verdict.admit)
        elif not returns:
            reason = InternalError(error) if error or verdict is None else verdict
            waiting.append(Wait(job.uid, reason))
    return Decisions(tuple(admitted), tuple(waiting), queue.reservations, window.following)


@dataclass(frozen=True, slots=True)
class _Cycle:
    """Takes one job after the other, each in isolation."""

    evaluation: _Evaluation
    queue: SchedulingQueue
    isolation: Isolation
    window: QueueWindow

    def evaluate(self, job: Job, *, returns: bool) -> StartVerdict | Reason | None:
        """The job's start, or why it waits; None if its evaluation raises, or for one that
        ``returns``."""
        self.queue.settle()
        evaluate = functools.partial(self.evaluation.evaluate, job, returns=returns)
        evaluated = self.isolation.run(Stage.DECISION, job.uid, evaluate, otherwise=None)
        if evaluated is None:
            return None
        verdict, work = evaluated
        self.window.count(work)
        if isinstance(verdict, StartVerdict | WaitVerdict):
            self.queue.apply(verdict)
        if not isinstance(verdict, WaitVerdict):
            return verdict
        if isinstance(verdict.reason, BindingBacklog):
            self.window.block(order.position(job))
        return verdict.reason

    def keep(self, job: Job, reason: Reason) -> None:
        """Let the job wait without evaluating it, with its reservation."""
        keep = functools.partial(self.queue.keep, job, reason)
        self.isolation.run(Stage.RESERVATION, job.uid, keep, otherwise=None)


@dataclass(frozen=True, slots=True)
class _Evaluation:
    """What one job after the other is evaluated against."""

    queues: tuple[str, ...]
    floor: Cluster
    signatures: SignatureIndex
    queue: SchedulingQueue
    limits: dict[TopologyConstraints, ResolvedConstraints | TierNotFound] = field(
        default_factory=dict
    )
    aligned: dict[ResolvedConstraints, Sequence[ResolvedConstraints]] = field(default_factory=dict)

    def evaluate(
        self, job: Job, *, returns: bool
    ) -> tuple[StartVerdict | WaitVerdict | Reason, EvaluationWork]:
        """The job's verdict, and the work that it took."""
        _check(job)
        if job.queue not in self.queues:
            missing = QueueNotFound(queue=job.queue, existing=self.queues)
            return missing, EvaluationWork(JOB)
        demands: list[RoleDemand] = []
        for role in job.roles:
            limits = self._limits(role.constraints)
            if isinstance(limits, TierNotFound):
                return limits, EvaluationWork(JOB)
            demands.append(self._demand(role, limits))
        verdict = self._verdict(job, demands, returns=returns)
        work = evaluation_work(demands, verdict, self.floor, starts=self.queue.starts)
        return verdict, work

    def _demand(self, role: Role, limits: ResolvedConstraints) -> RoleDemand:
        signature = self.signatures.of(role)
        ways = self._ways(limits) if role.constraints.aligned else [limits]
        largest = max(ways, key=lambda way: self.signatures.capacity(signature, way))
        return RoleDemand(role, signature, ways, largest)

    def _verdict(
        self, job: Job, demands: Sequence[RoleDemand], *, returns: bool
    ) -> StartVerdict | WaitVerdict | NeverFits:
        for demand in demands:
            role = demand.role
            if self.signatures.capacity(demand.signature, demand.largest) < role.replicas:
                never = self.signatures.never_fits(role, demand.signature, demand.largest)
                return replace(never, role=role.name) if len(demands) > 1 else never
        if returns:
            return self.queue.reserve_for_return(job, demands)
        return self.queue.evaluate(job, demands)

    def _limits(self, asked: TopologyConstraints) -> ResolvedConstraints | TierNotFound:
        if asked not in self.limits:
            self.limits[asked] = constraints.resolve(asked, self.floor)
        return self.limits[asked]

    def _ways(self, limits: ResolvedConstraints) -> Sequence[ResolvedConstraints]:
        if limits not in self.aligned:
            self.aligned[limits] = constraints.for_each_rail_order(limits, self.floor)
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
    for role in job.roles:
        if role.replicas < 1:
            raise ValueError(
                f"job {job.namespace}/{job.name}: role {role.name} has {role.replicas} replicas, "
                "expected at least 1"
            )
        size = 1
        for segment in (each.nodes for each in role.constraints.segments):
            if segment % size:
                raise ValueError(
                    f"job {job.namespace}/{job.name}: segments of {segment} come after those of "
                    f"{size}, expected a multiple of these"
                )
            size = segment
        if role.replicas % size:
            raise ValueError(
                f"job {job.namespace}/{job.name}: role {role.name} has {role.replicas} replicas, "
                f"expected a multiple of its segments of {size}"
            )
