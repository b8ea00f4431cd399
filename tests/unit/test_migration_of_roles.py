"""Which running jobs of several roles migrate."""

from __future__ import annotations

from dataclasses import replace

from fixtures import GPU, job, node
from fixtures.attempts import pods, rank, seen, world_of
from fixtures.trained_jobs import workload_of
from railwright_scheduler import plan as scheduling
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.attempt.resume_points import ResumePoint
from railwright_scheduler.cluster_state import ClusterState, ObservedAttempt, ObservedJob, Progress
from railwright_scheduler.model.evidence import PodState
from railwright_scheduler.model.snapshot import Job, Role
from railwright_scheduler.model.workload import Parallelism
from railwright_topology.links import Links

WORKERS, EVALUATOR = ("r0a", "r0b", "r1a", "r1b"), "e0"
EVALUATES = Role(1, {GPU: 8, "pods": 1}, name="eval", selector={"kind": "eval"})


def _job() -> Job:
    workload = workload_of(Parallelism(tensor=8, data=4))
    plain = job("a", replicas=4, ranks_per_pod=8, workload=workload)
    return replace(plain, roles=(*plain.roles, EVALUATES))


def _running(evaluator: PodState) -> ObservedJob:
    """It runs on the workers' nodes, and its evaluator runs or has ended."""
    nodes = (*WORKERS, EVALUATOR)
    checkpoints = (ResumePoint("worker", 1, 1000),)
    record = JobRecord(Phase.RUNNING, attempt=1, nodes=nodes, checkpoints=checkpoints)
    plain = seen(record)
    ranks = (*plain.ranks[:-1], rank(4, node=EVALUATOR, pod=evaluator, done=True))
    return replace(
        plain,
        job=_job(),
        ranks=ranks if evaluator is PodState.SUCCEEDED else plain.ranks,
        bound_age_s=1e6,
        progress=Progress(1000, total_steps=1_000_000),
        topology_hash="before",
    )


def _world(evaluator: PodState) -> ClusterState:
    """The uplinks of the second rack became narrow, and the evaluator's node is full: of its own
    pod, or of job b."""
    has_ended = evaluator is PodState.SUCCEEDED
    other = seen(JobRecord(Phase.RUNNING, attempt=1, nodes=(EVALUATOR,)), name="b")
    other = replace(other, job=job("b", submitted_s=9))
    racks = [
        node(name, name[:2], machine="DGX A100", used={GPU: 8} if name in WORKERS else {})
        for name in ("r0a", "r0b", "r1a", "r1b", "r2a", "r2b")
    ]
    full = {GPU: 8, "pods": 1}
    last = node(EVALUATOR, "r9", labels={"kind": "eval"}, machine="DGX A100", used=full)
    plain = world_of(
        _running(evaluator),
        *([other] if has_ended else []),
        nodes=(*racks, last),
        levels=("rack",),
        attempts={("b", 1): ObservedAttempt(pods=pods(EVALUATOR))} if has_ended else {},
    )
    links = (Links(leaving={"r0": 2.0, "r1": 0.1, "r2": 2.0, "r9": 2.0}),)
    return replace(plain, links=links, topology_hash="now", topology_age_s=60.0)


def test_job_migrates_with_an_evaluator_that_runs() -> None:
    (entry,) = scheduling.plan(_world(PodState.RUNNING)).ledger.entries
    assert entry.cause is not None
    assert entry.job_uid == "a"


def test_ended_pod_frees_nothing_for_a_migration() -> None:
    """Job b has the node of the evaluator that has ended: the migrated job could not start."""
    assert not scheduling.plan(_world(PodState.SUCCEEDED)).ledger.entries
