"""What becomes of a job that was active for as long as its deadline."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fixtures import GPU, node
from fixtures.attempts import (
    DAILY,
    FAILED,
    LOST,
    NODES,
    RECOVERING,
    RUNNING,
    SUSPENDED,
    crash,
    entry,
    pods,
    rank,
    seen,
    world_of,
)
from railwright_scheduler.attempt import record
from railwright_scheduler.attempt.causes import Cause, CauseCode
from railwright_scheduler.attempt.ledger import Entry
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.cluster_state import ObservedAttempt
from railwright_scheduler.model.snapshot import Purpose
from railwright_scheduler.plan import Plan, plan

FREE = tuple(node(f"n{i}") for i in range(4))
BUSY = (*(node(n, used={GPU: 8}) for n in NODES), node("n2"), node("n3"))
STARTED_S, DEADLINE_S = 1_000, 60
DUE_S = STARTED_S + DEADLINE_S


def planned(
    before: JobRecord, now_s: int, *, entries: tuple[Entry, ...] = (), line: str = "", **job: Any
) -> Plan:
    """The plan for a job that started at ``STARTED_S`` and may be active for a minute."""
    held = replace(before, started_s=STARTED_S)
    attempts = {each.key: ObservedAttempt(pods=pods(line), placed=True) for each in entries}
    state = world_of(
        seen(held, active_deadline_s=DEADLINE_S, **job),
        nodes=BUSY if held.live else FREE,
        entries=entries,
        attempts=attempts,
    )
    return plan(replace(state, now_s=now_s))


def revoked(taken: Plan) -> list[tuple[int, CauseCode]]:
    return [(each.attempt, each.cause.code) for each in taken.ledger.entries if each.cause]


def test_running_job_fails_at_its_deadline() -> None:
    assert planned(RUNNING, DUE_S - 1).records["a"].phase is Phase.RUNNING
    taken = planned(RUNNING, DUE_S)
    now = taken.records["a"]
    assert revoked(taken) == [(1, CauseCode.DEADLINE_EXCEEDED)]
    assert (now.phase, now.ended, now.failures, now.restarts) == (Phase.FAILED, 1, 0, 0)
    assert now.last_termination == Cause(
        CauseCode.DEADLINE_EXCEEDED,
        "the job has been active for 60 s, and its activeDeadlineSeconds is 60",
        time_s=DUE_S,
    )


def test_own_cause_precedes_the_deadline() -> None:
    """It is what a user has to know; the deadline ends the job one cycle later."""
    crashed = (rank(0), crash(1, 9.0))
    taken = planned(RUNNING, DUE_S, ranks=crashed)
    assert revoked(taken) == [(1, CauseCode.RANK_FAILED)]
    assert taken.records["a"].phase is Phase.RECOVERING


def test_suspension_precedes_the_deadline_and_resets_it() -> None:
    now = planned(RUNNING, DUE_S, suspend=True).records["a"]
    assert (now.phase, now.started_s) == (Phase.SUSPENDED, None)
    idle = planned(RECOVERING, DUE_S, suspend=True).records["a"]
    assert (idle.phase, idle.started_s) == (Phase.SUSPENDED, None)


def test_job_that_succeeds_at_its_deadline_succeeded() -> None:
    done = tuple(rank(number, done=True) for number in range(2))
    assert planned(RUNNING, DUE_S, ranks=done).records["a"].phase is Phase.SUCCEEDED


def test_commit_is_cancelled_at_the_deadline() -> None:
    before = replace(RECOVERING, attempt=0, ended=0)
    taken = planned(before, DUE_S, entries=(entry(),), line="n0 -")
    assert revoked(taken) == [(1, CauseCode.DEADLINE_EXCEEDED)]
    assert taken.records["a"].phase is Phase.FAILED


def test_unreadable_spec_does_not_restart_the_deadline() -> None:
    """The job has no hash until its spec can be read again: no pod is made from it meanwhile."""
    under_way = (entry(2, spec_hash="3-a"),)
    taken = planned(RECOVERING, DUE_S - 1, entries=under_way, line="n0 -", spec_hash="")
    now = taken.records["a"]
    assert revoked(taken) == [(2, CauseCode.COMMIT_REFUSED)]
    assert (now.phase, now.started_s, now.failures) == (Phase.QUEUED, STARTED_S, 0)
    late = planned(RECOVERING, DUE_S, entries=under_way, line="n0 -", spec_hash="")
    assert revoked(late) == [(2, CauseCode.DEADLINE_EXCEEDED)]


def test_running_job_with_unreadable_spec_keeps_its_start() -> None:
    before = replace(RUNNING, spec_hash="3-a")
    now = planned(before, DUE_S - 1, spec_hash="").records["a"]
    assert (now.phase, now.started_s) == (Phase.RUNNING, STARTED_S)


def test_attempt_ended_as_of_a_deleted_job_keeps_the_start() -> None:
    """A new leader that cannot read the job takes it for a deleted one, until it can."""
    gone = (entry(2, cause=Cause(CauseCode.JOB_DELETED, "the job was deleted")),)
    now = planned(RECOVERING, DUE_S - 1, entries=gone).records["a"]
    assert (now.phase, now.started_s) == (Phase.QUEUED, STARTED_S)


@pytest.mark.parametrize("phase", [Phase.RECOVERING, Phase.QUEUED])
def test_waiting_job_fails_at_its_deadline(phase: Phase) -> None:
    """By an attempt without pods in the ledger, which every leader reads before it begins one."""
    before = replace(RECOVERING, phase=phase)
    assert not revoked(planned(before, DUE_S - 1))
    taken = planned(before, DUE_S)
    assert [(each.attempt, each.nodes) for each in taken.ledger.entries] == [(2, ())]
    assert not taken.actions
    assert (taken.records["a"].phase, taken.records["a"].ended) == (Phase.FAILED, 2)


@pytest.mark.parametrize("cause", [None, LOST])
def test_waiting_job_with_a_newer_entry_is_left_to_it(cause: Cause | None) -> None:
    """Its status does not have that attempt yet."""
    taken = planned(RECOVERING, DUE_S, entries=(entry(2, cause=cause),))
    assert len(taken.ledger.entries) == 1


def test_job_that_waits_for_its_pods_fails_beside_them() -> None:
    lost = entry(1, cause=LOST)
    taken = planned(RECOVERING, DUE_S, entries=(lost,), line="n0~ n1")
    assert revoked(taken) == [(1, CauseCode.NODE_LOST), (2, CauseCode.DEADLINE_EXCEEDED)]


@pytest.mark.parametrize("phase", [Phase.QUEUED, Phase.SUSPENDED])
def test_job_that_never_started_has_all_its_time(phase: Phase) -> None:
    waiting = seen(JobRecord(phase=phase), active_deadline_s=1)
    taken = plan(replace(world_of(waiting, nodes=FREE[:1]), now_s=10**9))
    assert taken.records["a"].phase is Phase.QUEUED


def test_pre_run_ends_at_the_deadline() -> None:
    """It follows when the user asks for one while the job recovers."""
    profiling = replace(RUNNING, phase=Phase.PROFILING, started_s=STARTED_S)
    late = replace(entry(1, cause=Cause(CauseCode.DEADLINE_EXCEEDED, "")), purpose=Purpose.PRE_RUN)
    now = record.fold(profiling, [late], DAILY)
    assert (now.phase, now.pre_run) == (Phase.FAILED, None)


def test_start_is_that_of_the_first_attempt() -> None:
    first = record.started(replace(RUNNING, phase=Phase.STARTING), now_s=5)
    again = record.started(replace(first, phase=Phase.STARTING), now_s=9)
    assert (first.started_s, again.started_s) == (5, 5)
    for cause, kept in ((FAILED, 5), (SUSPENDED, None)):
        assert record.fold(first, [entry(cause=cause)], DAILY).started_s == kept


def test_start_by_a_clock_ahead_counts_from_now() -> None:
    """The job neither fails at once, nor never."""
    taken = planned(RUNNING, STARTED_S - 500)
    assert taken.records["a"].started_s == STARTED_S - 500
    assert taken.records["a"].phase is Phase.RUNNING
