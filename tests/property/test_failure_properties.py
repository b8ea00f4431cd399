"""Whatever a job's failures and the clocks of its leaders: its failures are counted in a window."""

from __future__ import annotations

import itertools
from dataclasses import replace

import orjson
from hypothesis import given
from hypothesis import strategies as st

from fixtures.attempts import FAILED, LOST, entry
from railwright_operator.report import status
from railwright_operator.report.status import StatusInput
from railwright_operator.watch.job_records import record_of
from railwright_scheduler.attempt import record
from railwright_scheduler.attempt.causes import Cause, CauseCode
from railwright_scheduler.attempt.failure_policy import FailurePolicy
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord

HUNG = Cause(CauseCode.HUNG, "no step")
CAUSES = st.sampled_from((FAILED, FAILED, LOST, HUNG))
PAUSES_S = st.integers(0, 400)
CLOCK_ERRORS_S = st.sampled_from((0, 0, 100, -70, -10_000, 90_000))
POLICIES = st.builds(FailurePolicy, st.integers(0, 4), st.integers(60, 600))
ENDS = st.lists(st.tuples(CAUSES, PAUSES_S, CLOCK_ERRORS_S), max_size=30)


def through_status(held: JobRecord, policy: FailurePolicy) -> JobRecord:
    """What another leader has of this record: what the status says."""
    given = StatusInput(
        record=held,
        before={},
        generation=1,
        now="2026-01-02T03:04:05Z",
        failures_used=policy.usage(held.failure_times_s, 0),
    )
    return record_of({"status": orjson.loads(orjson.dumps(status.render(given)))})


@given(ENDS, POLICIES)
def test_windows_bound_failures_of_a_living_job(
    ends: list[tuple[Cause, int, int]], policy: FailurePolicy
) -> None:
    """By the clocks of leaders, none of which goes back for the job. A decision from the status
    alone is that of the leader that has seen it all."""
    now, true_s = JobRecord(), 1_800_000_000
    failed_s: list[int] = []
    for attempt, (cause, pause_s, error_s) in enumerate(ends, start=1):
        true_s += pause_s
        before, noticed = now, entry(attempt, cause=replace(cause, time_s=true_s + error_s))
        now = record.fold(replace(now, phase=Phase.QUEUED), [noticed], policy)
        other = replace(through_status(before, policy), phase=Phase.QUEUED)
        assert record.fold(other, [noticed], policy) == now
        if now.failures > before.failures:
            failed_s.append(max([true_s + error_s, *failed_s]))
        window = [at_s for at_s in failed_s if failed_s[-1] - at_s < policy.window_s]
        assert now.failure_times_s == tuple(window)
        assert (now.phase is Phase.FAILED) == (len(window) > policy.backoff_limit)
        if now.phase is Phase.FAILED:
            break


@given(st.lists(st.tuples(PAUSES_S, st.integers(0, 50)), max_size=40), POLICIES)
def test_clock_errors_shift_a_window_by_no_more(
    failures: list[tuple[int, int]], policy: FailurePolicy
) -> None:
    """Clocks that are wrong by up to 50 s: a job that lives had no more failures than it may have
    in any window that is 50 s shorter; one that failed had as many in one that is 50 s longer, or
    its clock was ahead before."""
    now, true_s, all_s = JobRecord(), 0, []
    for attempt, (pause_s, error_s) in enumerate(failures, start=1):
        true_s += pause_s
        all_s.append(true_s)
        noticed = entry(attempt, cause=replace(FAILED, time_s=true_s + error_s))
        now = record.fold(replace(now, phase=Phase.QUEUED), [noticed], policy)
        if now.phase is Phase.FAILED:
            break
    for first, last in itertools.combinations(range(len(all_s)), 2):
        if all_s[last] - all_s[first] < policy.window_s - 50:
            assert last - first < policy.backoff_limit + (now.phase is Phase.FAILED)
    if now.phase is Phase.FAILED:
        longest_s = policy.window_s + 50
        assert sum(all_s[-1] - at_s < longest_s for at_s in all_s) > policy.backoff_limit
