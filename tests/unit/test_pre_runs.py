"""A job has a pre-run as long as that can bring something, and never longer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fixtures import attempts
from fixtures.attempts import crash, entry, rank, world_of
from fixtures.jobs import job, layout, node, with_role
from fixtures.trained_jobs import workload_of
from railwright_scheduler import plan as scheduling
from railwright_scheduler import pre_run
from railwright_scheduler.attempt import record as records
from railwright_scheduler.attempt.causes import Cause, CauseCode
from railwright_scheduler.attempt.gang import CreatePod, WritePlacement
from railwright_scheduler.attempt.ledger import Entry
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import (
    PRE_RUNS_MAX,
    JobRecord,
    PreRunRecord,
)
from railwright_scheduler.attempt.resume_points import GroupReport, ResumePoint
from railwright_scheduler.cluster_state import ObservedAttempt, ObservedJob, ObservedPreRun
from railwright_scheduler.model.snapshot import Purpose, TopologyConstraints
from railwright_scheduler.model.workload import Parallelism
from railwright_scheduler.plan import Plan

WANTED = ObservedPreRun("1-pre-run")
NEEDED = PreRunRecord("1-pre-run")
PROFILING = JobRecord(
    phase=Phase.PROFILING, attempt=1, nodes=("n0", "n1"), spec_hash=WANTED.spec_hash, pre_run=NEEDED
)
NODES = tuple(node(f"n{number}") for number in range(4))


def large(record: JobRecord | None = None, **changes: Any) -> ObservedJob:
    """A job of four replicas, one a node, for which two can stand."""
    asked = job(replicas=4, workload=workload_of(Parallelism(data=4)))
    plain = attempts.seen(record, job=asked, spec_hash="1-job", pre_run=WANTED)
    return replace(plain, **changes)


def run_cycle(seen: ObservedJob, *entries: Entry, pods: str = "") -> Plan:
    """One cycle; ``pods`` are those of the newest entry."""
    its = ObservedAttempt(attempts.pods(pods), placed=True)
    observed = {each.key: its for each in entries[-1:]}
    return scheduling.plan(world_of(seen, nodes=NODES, entries=entries, attempts=observed))


def ended(plan: Plan) -> tuple[CauseCode, JobRecord]:
    """Why the only attempt is aborted, and the record that follows."""
    (found,) = plan.ledger.entries
    assert found.cause is not None
    assert found.purpose is Purpose.PRE_RUN
    return found.cause.code, plan.records["a"]


def test_large_job_begins_with_a_small_attempt() -> None:
    plan = run_cycle(large())
    (committed,) = plan.ledger.entries
    assert (committed.purpose, committed.nodes) == (Purpose.PRE_RUN, ("n0", "n1"))
    assert committed.spec_hash == WANTED.spec_hash
    assert plan.records["a"] == PROFILING
    assert [type(action) for action in plan.actions] == [WritePlacement]


def test_pre_run_waits_in_the_queue_as_any_attempt() -> None:
    plan = scheduling.plan(world_of(large(), nodes=NODES[:1]))
    assert (plan.ledger.entries, plan.records["a"].phase) == ((), Phase.QUEUED)
    assert plan.records["a"].pre_run == NEEDED
    assert "a" in plan.waits


def test_pre_run_has_each_replicas_work_and_no_constraints() -> None:
    seen = large()
    asked = with_role(seen.job, constraints=TopologyConstraints(required="rack"))
    (small,) = pre_run.resolve(replace(seen, job=asked), ()).job.roles
    assert small.workload is not None
    assert (small.replicas, small.workload.split) == (2, Parallelism(data=2))
    assert small.workload.recipe.global_batch == 2
    assert small.constraints == TopologyConstraints()


def test_stored_profile_ends_the_pre_run_and_the_job_starts() -> None:
    """It waits until its own pods are gone, so that their nodes are its own again."""
    seen = large(PROFILING, pre_run=replace(WANTED, profiled=True))
    plan = run_cycle(seen)
    code, now = ended(plan)
    assert (code, now.phase, now.ended) == (CauseCode.PROFILED, Phase.QUEUED, 1)
    assert (now.failures, now.restarts, now.start_failures) == (0, 0, 0)
    after = replace(seen, record=now, ranks=(), started=False, ended_age_s=1.0)
    waits = run_cycle(after, *plan.ledger.entries, pods="n0~ n1~")
    assert [each.attempt for each in waits.ledger.entries] == [1]
    (committed,) = run_cycle(after).ledger.entries
    assert (committed.attempt, committed.purpose) == (2, Purpose.TRAINING)
    assert (len(committed.nodes), committed.spec_hash) == (4, "1-job")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ranks": (crash(0, 60.0), rank(1))}, "rank 0 on n0 exited with 1"),
        ({"pre_run": replace(WANTED, error="of one replica")}, "recorded cannot stand for the job"),
        ({"bound_age_s": pre_run.RECORDS_S + 1.0}, "has not recorded within 25 min"),
        (
            {"ranks": tuple(rank(each, done=True, silent_s=60.0) for each in range(2))},
            "not all of its ranks had recorded their steps when it ended",
        ),
    ],
)
def test_pre_run_without_profile_is_given_up(changes: dict[str, Any], words: str) -> None:
    """Once, and at no cost for the job."""
    _, now = ended(run_cycle(large(PROFILING, **changes)))
    assert now.pre_run is not None
    assert now.pre_run.given_up.startswith("the pre-run ended in attempt 1: ")
    assert words in now.pre_run.given_up
    assert (now.phase, now.failures, now.backoff_s) == (Phase.QUEUED, 0, 0)
    (committed,) = run_cycle(large(now)).ledger.entries
    assert (committed.purpose, len(committed.nodes)) == (Purpose.TRAINING, 4)
    # Of anything else it is tried again.
    (again,) = run_cycle(large(now, pre_run=ObservedPreRun("1-other"))).ledger.entries
    assert (again.purpose, again.spec_hash) == (Purpose.PRE_RUN, "1-other")


def test_ranks_that_end_have_time_to_hand_over() -> None:
    seen = large(PROFILING, ranks=(rank(0, done=True), rank(1, done=True)))
    plan = run_cycle(seen)
    assert (plan.ledger.entries, plan.records["a"]) == ((), PROFILING)


def test_lost_node_brings_another_pre_run_and_not_for_ever() -> None:
    lost = rank(1, silent_s=60.0, lease_stale=True)
    record = PROFILING
    for attempt in range(1, PRE_RUNS_MAX + 1):
        now = replace(record, phase=Phase.PROFILING, attempt=attempt, nodes=("n0", "n1"))
        now = replace(now, spec_hash=WANTED.spec_hash)
        code, record = ended(run_cycle(large(now, ranks=(rank(0), lost))))
        assert (code, record.phase, record.restarts) == (CauseCode.NODE_LOST, Phase.QUEUED, 0)
        assert record.pre_run is not None
        assert record.pre_run.attempts == attempt
        (following,) = run_cycle(large(record)).ledger.entries
        is_last = attempt == PRE_RUNS_MAX
        assert following.purpose is (Purpose.TRAINING if is_last else Purpose.PRE_RUN)
        assert bool(record.pre_run.given_up) is is_last


def test_suspended_pre_run_follows_again_on_resume() -> None:
    code, now = ended(run_cycle(large(PROFILING, suspend=True)))
    assert (code, now.phase, now.pre_run) == (CauseCode.SUSPENDED, Phase.SUSPENDED, NEEDED)
    assert run_cycle(large(now, suspend=True)).ledger.entries == ()
    (committed,) = run_cycle(large(now)).ledger.entries
    assert (committed.attempt, committed.purpose) == (2, Purpose.PRE_RUN)


@pytest.mark.parametrize("other", [None, ObservedPreRun("1-other")], ids=["no more", "another"])
def test_pre_run_ends_when_the_user_changes_it(other: ObservedPreRun | None) -> None:
    found, now = ended(run_cycle(large(PROFILING, pre_run=other)))
    assert (found, now.phase, now.failures) == (CauseCode.SUSPENDED, Phase.QUEUED, 0)


def test_new_leader_goes_on_with_the_pre_run() -> None:
    """Committing, also where the status was not written; and running."""
    plan = run_cycle(large())
    for record in (JobRecord(), PROFILING):
        again = run_cycle(large(record, ranks=(), started=False), *plan.ledger.entries, pods="")
        assert again.ledger.entries == plan.ledger.entries
        assert again.records["a"] == PROFILING
        assert {type(action) for action in again.actions} == {CreatePod}
    running = run_cycle(large(PROFILING, started=False))
    assert (running.ledger.entries, running.records["a"]) == ((), PROFILING)


def test_revoked_pre_run_is_counted_from_the_ledger() -> None:
    """The leader before wrote the end of an attempt that no status has."""
    failed = entry(cause=attempts.FAILED, purpose=Purpose.PRE_RUN)
    now = run_cycle(large(ranks=()), failed, pods="n0~").records["a"]
    assert (now.phase, now.attempt, now.failures) == (Phase.QUEUED, 1, 0)
    assert now.pre_run is not None
    assert now.pre_run.given_up


@pytest.mark.parametrize(
    "changes",
    [
        {"pre_run": None},
        {"pre_run": replace(WANTED, profiled=True)},
        {"job": job(replicas=2, workload=workload_of(Parallelism(data=2)))},
        {"job": job(replicas=2)},
    ],
    ids=["not wanted", "profiled", "no smaller", "unknown"],
)
def test_job_that_needs_no_pre_run_starts(changes: dict[str, Any]) -> None:
    plan = run_cycle(large(**changes))
    (committed,) = plan.ledger.entries
    assert (committed.purpose, plan.records["a"].pre_run) == (Purpose.TRAINING, None)


@pytest.mark.parametrize(
    ("code", "phase", "needed"),
    [
        (CauseCode.NODE_LOST, Phase.RECOVERING, None),
        (CauseCode.REMAPPED, Phase.QUEUED, None),
        (CauseCode.RANK_FAILED, Phase.QUEUED, None),
        (CauseCode.NODE_LOST, Phase.SUSPENDED, NEEDED),
        (CauseCode.SUSPENDED, Phase.QUEUED, NEEDED),
    ],
)
def test_job_that_ran_goes_on_unless_it_was_suspended(
    code: CauseCode, phase: Phase, needed: PreRunRecord | None
) -> None:
    last = Cause(code, "as told")
    ran = JobRecord(phase=phase, attempt=1, ended=1, last_termination=last)
    assert pre_run.resolve(large(ran), ()).record.pre_run == needed


@pytest.mark.parametrize("current", ["2-pre-run", ""], ids=["another version", "unreadable"])
def test_pre_run_that_was_given_up_stays_so_after_an_upgrade(current: str) -> None:
    """A job that lost a node trains on; only a spec that is known to differ has another one."""
    held = replace(NEEDED, attempts=1, given_up="it has not recorded within 25 min")
    ran = replace(attempts.RECOVERING, pre_run=held)
    plan = run_cycle(large(ran, pre_run=ObservedPreRun(current)))
    (committed,) = plan.ledger.entries
    assert (committed.purpose, len(committed.nodes)) == (Purpose.TRAINING, 4)
    now = plan.records["a"].pre_run
    assert now == replace(held, spec_hash=current or held.spec_hash)


def test_too_large_pre_run_is_not_tried() -> None:
    split = Parallelism(tensor=4, context=64, data=4)
    seen = large(job=job(replicas=128, ranks_per_pod=8, workload=workload_of(split)))
    found = pre_run.resolve(seen, ())
    assert found.record.pre_run is not None
    assert found.record.pre_run.given_up == (
        "a pre-run would have 512 ranks: at most 256 can be recorded"
    )
    assert found.job is seen.job


def test_checkpoints_of_a_pre_run_are_never_read() -> None:
    before = replace(PROFILING, attempt=2, ended=1, checkpoints=(ResumePoint("worker", 1, 100),))
    source = ResumePoint("worker", 1, 50)
    report = GroupReport("worker", committed=500, resumed_from=source)
    assert records.reported(before, [report], layout(1)) == before
