"""A job's record follows from the ledger's entries, however often they are folded into it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fixtures.attempts import (
    FAILED,
    LOST,
    NODES,
    RECOVERING,
    REFUSED,
    RUNNING,
    SUSPENDED,
    entry,
)
from fixtures.jobs import layout
from railwright_scheduler.attempt import record
from railwright_scheduler.attempt.causes import HANGS_FREE, Cause, CauseCode
from railwright_scheduler.attempt.failure_policy import FailurePolicy
from railwright_scheduler.attempt.ledger import Entry
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.attempt.resume_points import GroupReport, ResumePoint
from railwright_scheduler.model.rank_layout import number_ranks
from railwright_scheduler.model.snapshot import Role

QUEUED = JobRecord()
TWO_GROUPS = number_ranks([Role(2, {}, "worker"), Role(1, {}, "evaluator")])
DAY_S = 86_400
HUNG = Cause(CauseCode.HUNG, "no rank has made a step for 61 s")
DELETED = Cause(CauseCode.POD_DELETED, "the pod of node rank 1 on n1 was deleted")


def test_a_commit_starts_the_job() -> None:
    now = record.fold(QUEUED, [entry()], FailurePolicy(3, DAY_S))
    assert (now.phase, now.attempt, now.ended, now.nodes) == (Phase.STARTING, 1, 0, NODES)
    assert now.live


@pytest.mark.parametrize(
    ("cause", "limit", "phase", "restarts", "failures"),
    [
        (FAILED, 1, Phase.RECOVERING, 1, 1),
        (FAILED, 0, Phase.FAILED, 0, 1),
        (LOST, 0, Phase.RECOVERING, 1, 0),
        (SUSPENDED, 0, Phase.SUSPENDED, 0, 0),
    ],
)
def test_each_cause_has_its_own_price(
    cause: Cause, limit: int, phase: Phase, restarts: int, failures: int
) -> None:
    now = record.fold(RUNNING, [entry(cause=cause)], FailurePolicy(limit, DAY_S))
    assert (now.phase, now.restarts, now.failures) == (phase, restarts, failures)
    assert (now.ended, now.nodes, now.last_termination) == (1, (), cause)


def test_a_gang_that_was_never_whole_goes_back_to_the_queue() -> None:
    now = record.fold(QUEUED, [entry(cause=REFUSED)], FailurePolicy(0, DAY_S))
    assert (now.phase, now.attempt, now.ended, now.restarts) == (Phase.QUEUED, 1, 1, 0)


def test_a_budget_made_smaller_is_not_spent_by_a_lost_node() -> None:
    failed_twice = replace(RUNNING, attempt=3, ended=2, failures=2, failure_times_s=(1, 2))
    now = record.fold(failed_twice, [entry(3, cause=LOST)], FailurePolicy(1, DAY_S))
    assert now.phase is Phase.RECOVERING


def test_resumed_job_admitted_at_once_is_starting() -> None:
    """A suspended record with a new entry becomes Starting."""
    suspended = JobRecord(phase=Phase.SUSPENDED, attempt=1, ended=1)
    now = record.fold(suspended, [entry(2)], FailurePolicy(3, DAY_S))
    assert (now.phase, now.attempt) == (Phase.STARTING, 2)


@pytest.mark.parametrize(
    ("cause", "failures", "start_failures", "backoff_s"),
    [
        (None, 0, 0, 0),
        (LOST, 7, 7, 0),
        (SUSPENDED, 7, 7, 0),
        (DELETED, 7, 0, 0),
        (DELETED, 7, 1, 5),
        (REFUSED, 7, 2, 10),
        (FAILED, 1, 0, 5),
        (FAILED, 2, 1, 10),
        (FAILED, 2, 4, 40),
        (FAILED, 6, 0, 160),
        (FAILED, 7, 0, 300),
        (FAILED, 101, 0, 300),
    ],
)
def test_failures_and_early_ends_wait_longer_and_longer(
    cause: Cause | None, failures: int, start_failures: int, backoff_s: int
) -> None:
    times_s = tuple(range(failures))
    ended = JobRecord(
        failure_times_s=times_s, start_failures=start_failures, last_termination=cause
    )
    assert ended.backoff_s == backoff_s


def test_ends_before_the_barrier_are_counted_in_a_row() -> None:
    starting = JobRecord(phase=Phase.STARTING, attempt=1, start_failures=4)
    refused = entry(cause=REFUSED)
    assert record.fold(QUEUED, [refused], FailurePolicy(3, DAY_S)).start_failures == 1
    assert record.fold(starting, [refused], FailurePolicy(3, DAY_S)).start_failures == 5
    assert record.fold(RUNNING, [entry(cause=FAILED)], FailurePolicy(3, DAY_S)).start_failures == 0
    assert record.started(starting, now_s=7).start_failures == 0


@pytest.mark.parametrize(
    ("start", "suspend", "waits", "phase"),
    [
        (QUEUED, False, True, Phase.QUEUED),
        (QUEUED, True, False, Phase.SUSPENDED),
        (RECOVERING, False, False, Phase.RECOVERING),
        (RECOVERING, False, True, Phase.QUEUED),
        (RECOVERING, True, True, Phase.SUSPENDED),
        (JobRecord(phase=Phase.SUSPENDED), True, False, Phase.SUSPENDED),
        (JobRecord(phase=Phase.SUSPENDED), False, False, Phase.QUEUED),
        (RUNNING, True, False, Phase.RUNNING),
        (JobRecord(phase=Phase.FAILED), True, True, Phase.FAILED),
    ],
)
def test_user_and_queue_decide_phase_without_attempt(
    start: JobRecord, suspend: bool, waits: bool, phase: Phase
) -> None:
    assert record.derive_waiting(start, suspend=suspend, waits=waits).phase is phase


def test_success_is_final() -> None:
    now = record.succeeded(RUNNING)
    assert (now.phase, now.ended, now.nodes, now.live) == (Phase.SUCCEEDED, 1, (), False)


def test_a_way_that_is_not_in_the_table_is_refused() -> None:
    with pytest.raises(AssertionError, match="no edge Queued -> Running"):
        record.started(QUEUED, now_s=7)


def test_groups_of_live_attempt_alone_move_their_points() -> None:
    """Neither a revoked attempt nor a pre-run commits anything."""
    reports = [GroupReport("worker", committed=30), GroupReport("evaluator", committed=20)]
    now = record.reported(RUNNING, reports, TWO_GROUPS)
    assert now.checkpoints == (ResumePoint("evaluator", 1, 20), ResumePoint("worker", 1, 30))
    assert record.reported(RECOVERING, reports, TWO_GROUPS) == RECOVERING
    pre_run = replace(RUNNING, phase=Phase.PROFILING)
    assert record.reported(pre_run, reports, TWO_GROUPS) == pre_run


def test_checkpoint_of_evaluator_ends_no_series_of_hangs() -> None:
    hanging = replace(RUNNING, hangs=2)
    evaluated = record.reported(hanging, [GroupReport("evaluator", committed=50)], TWO_GROUPS)
    assert evaluated.hangs == 2
    trained = record.reported(evaluated, [GroupReport("worker", committed=10)], TWO_GROUPS)
    assert trained.hangs == 0


def test_an_out_of_memory_is_the_users_to_mend() -> None:
    assert Cause(CauseCode.OUT_OF_MEMORY, "").counted


@pytest.mark.parametrize(
    ("held", "entries"),
    [
        (RUNNING, [entry()]),
        (RUNNING, [entry(cause=REFUSED)]),
        (RUNNING, [entry(3)]),
        (replace(RECOVERING, phase=Phase.SUCCEEDED), [entry(2)]),
        (replace(RECOVERING, phase=Phase.FAILED, attempt=9, ended=9), [entry(2)]),
        (JobRecord(), [entry(2)]),
        (JobRecord(), [entry(1, cause=FAILED), entry(2, cause=LOST)]),
    ],
)
def test_a_record_that_the_ledger_contradicts_gives_way_to_it(
    held: JobRecord, entries: list[Entry]
) -> None:
    reconciled = record.reconcile(held, entries)
    newest = entries[-1].attempt
    assert (reconciled.phase, reconciled.attempt, reconciled.ended) == (
        Phase.QUEUED,
        newest - 1,
        newest - 1,
    )
    assert record.fold(reconciled, entries, FailurePolicy(3, DAY_S)).attempt == newest


@pytest.mark.parametrize(
    ("held", "entries"),
    [
        (RUNNING, []),
        (JobRecord(), [entry()]),
        (replace(RUNNING, phase=Phase.STARTING), [entry()]),
        (RUNNING, [entry(cause=FAILED)]),
        (RECOVERING, [entry(cause=LOST)]),
        (RECOVERING, [entry(cause=LOST), entry(2)]),
        (replace(RUNNING, attempt=2, ended=1), [entry(cause=LOST)]),
    ],
)
def test_a_record_that_goes_with_the_ledger_stays(held: JobRecord, entries: list[Entry]) -> None:
    assert record.reconcile(held, entries) is held


def committed(now: JobRecord, *, attempt: int, step: int) -> JobRecord:
    """The record once this attempt, while it was live, committed the step."""
    live = replace(now, phase=Phase.RUNNING, attempt=attempt, ended=attempt - 1)
    after = record.reported(live, [GroupReport("worker", committed=step)], layout(2))
    return replace(now, checkpoints=after.checkpoints, hangs=after.hangs)


def test_hangs_without_a_new_checkpoint_spend_budget() -> None:
    now = JobRecord()
    spent = []
    for attempt in range(1, HANGS_FREE + 3):
        if attempt == 2:
            now = committed(now, attempt=1, step=10)
        entries = [entry(attempt, cause=HUNG)]
        now = record.fold(replace(now, phase=Phase.QUEUED), entries, FailurePolicy(100, DAY_S))
        spent.append((now.hangs, now.failures))
        assert record.fold(now, entries, FailurePolicy(100, DAY_S)) == now
    assert spent == [(1, 0), (1, 0), (2, 0), (3, 0), (4, 1)]
    assert replace(now, start_failures=0).backoff_s == 40
    # One that was committed before brings the job no further.
    again = committed(now, attempt=5, step=10)
    assert (again.hangs, committed(again, attempt=5, step=11).hangs) == (4, 0)


def test_job_that_hangs_for_ever_fails() -> None:
    hanging = replace(RUNNING, hangs=HANGS_FREE)
    assert record.fold(hanging, [entry(cause=HUNG)], FailurePolicy(0, DAY_S)).phase is Phase.FAILED
    first = record.fold(RUNNING, [entry(cause=HUNG)], FailurePolicy(0, DAY_S))
    assert (first.phase, first.restarts, first.failures) == (Phase.RECOVERING, 1, 0)
