"""Decide about every pending job in queue order: it starts as a complete gang, or waits.

``decide`` is a pure function of the snapshot. Neither the order of nodes, jobs and queues in it nor
the hash seed of the process changes the result. Cached results of earlier cycles do so only if
``TRAFFIC_WORK`` is too little for all running jobs (``link_traffic``).

The stages that each job goes through are in ``SchedulingQueue``.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from railwright_scheduler import cluster
from railwright_scheduler.budget import TRAFFIC_WORK, WorkBudget
from railwright_scheduler.cluster import Cluster
from railwright_scheduler.isolation import Isolation, Stage
from railwright_scheduler.model.decisions import Admit, Decisions, Wait
from railwright_scheduler.model.reasons import InternalError, NotEvaluated, Reason
from railwright_scheduler.model.snapshot import Job, Snapshot
from railwright_scheduler.policy import scheduling_queue
from railwright_scheduler.policy.admission import Admission
from railwright_scheduler.policy.candidate import Effect
from railwright_scheduler.policy.mappings import Mappings
from railwright_scheduler.policy.queue_window import EvaluationWork, QueueWindow, evaluation_work
from railwright_scheduler.policy.scheduling_queue import SchedulingQueue, Verdict


def decide(
    snapshot: Snapshot,
    isolation: Isolation | None = None,
    admission: Admission | None = None,
    traffic_work: WorkBudget | None = None,
    reasons: Mapping[str, Reason] = MappingProxyType({}),
    mappings: Mappings | None = None,
) -> Decisions:
    """Decide for every job of the snapshot whether it starts now, and where.

    If one cycle may not evaluate all jobs (``queue_window``), the others keep their reason from the
    last cycle (``reasons``) and their reservation.

    A job whose evaluation raises waits as InternalError and does not affect the others.
    ``isolation`` collects such faults; ``admission`` counts what starts, beside gangs that are
    being bound; ``traffic_work`` is the remaining work of this cycle for the traffic of running
    jobs (``link_traffic``), all of it if None; ``mappings`` has what earlier cycles requested, and
    collects what this one requests; if None, all are computed at once. Raises ValueError, with the
    field and the value, for an invalid snapshot: two nodes or jobs of one name, a node's amounts
    out of range, domains that miss a level.
    """
    isolation = Isolation() if isolation is None else isolation
    _check_unique((*snapshot.jobs, *snapshot.awaiting_own_pods))
    mappings = Mappings() if mappings is None else mappings
    nodes = cluster.of(snapshot)
    queue = SchedulingQueue(
        snapshot,
        nodes,
        isolation=isolation,
        admission=Admission() if admission is None else admission,
        traffic_work=WorkBudget(TRAFFIC_WORK) if traffic_work is None else traffic_work,
        mappings=mappings,
    )
    window = QueueWindow(snapshot.queue_round)
    cycle = _Cycle(nodes, queue, isolation, window)
    awaiting = frozenset(job.uid for job in snapshot.awaiting_own_pods)
    admitted: list[Admit] = []
    waiting: list[Wait] = []
    position = 1
    for job in scheduling_queue.by_priority((*snapshot.jobs, *snapshot.awaiting_own_pods)):
        awaits_own_pods = job.uid in awaiting
        outcome: Admit | Reason | None
        if isolation.error(Stage.DECISION, job.uid):
            outcome = None
        elif window.admits(scheduling_queue.position(job), is_due=mappings.is_due(job.uid)):
            outcome = cycle.evaluate(job, awaits_own_pods=awaits_own_pods)
        else:
            outcome = reasons.get(job.uid, NotEvaluated(position))
            if isinstance(outcome, NotEvaluated):
                outcome = NotEvaluated(position)
            cycle.carry_over(job, outcome)
        error = isolation.error(Stage.DECISION, job.uid)
        position += not error
        if isinstance(outcome, Admit):
            admitted.append(outcome)
        elif not awaits_own_pods:
            reason = InternalError(error) if error or outcome is None else outcome
            waiting.append(Wait(job.uid, reason))
    return Decisions(tuple(admitted), tuple(waiting), queue.reservations, window.following)


@dataclass(frozen=True, slots=True)
class _Cycle:
    """Takes one job after the other, each in isolation."""

    cluster: Cluster
    queue: SchedulingQueue
    isolation: Isolation
    window: QueueWindow

    def evaluate(self, job: Job, *, awaits_own_pods: bool) -> Admit | Reason | None:
        """The job's start, or why it waits; None if its evaluation raises, or for one that
        ``awaits_own_pods``."""
        self.queue.settle()
        evaluate = functools.partial(self._evaluate, job, awaits_own_pods=awaits_own_pods)
        evaluated = self.isolation.run(Stage.DECISION, job.uid, evaluate, otherwise=None)
        if evaluated is None:
            return None
        verdict, work = evaluated
        self.window.count(work)
        self.queue.apply(verdict)
        if (refusal := verdict.candidate.refusal) is None:
            return verdict.candidate.admit
        if refusal.effect is Effect.BLOCKS:
            self.window.block(scheduling_queue.position(job))
        return refusal.reason

    def _evaluate(self, job: Job, *, awaits_own_pods: bool) -> tuple[Verdict, EvaluationWork]:
        """The job's verdict, and the work that it took."""
        _check(job)
        verdict = self.queue.evaluate(job, awaits_own_pods=awaits_own_pods)
        return verdict, evaluation_work(verdict, self.cluster, starts=self.queue.starts)

    def carry_over(self, job: Job, reason: Reason) -> None:
        """Let the job wait without evaluating it, with its reservation."""
        work = functools.partial(self.queue.carry_over, job, reason)
        self.isolation.run(Stage.RESERVATION, job.uid, work, otherwise=None)


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
