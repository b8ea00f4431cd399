"""How many failures a job may have, and what becomes of it when the clocks of leaders differ."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import ValidationError

from fixtures.attempts import FAILED, LOST, RUNNING, entry
from railwright_api import failure_policy as api
from railwright_conversion import failure_policies, times
from railwright_scheduler.attempt import failure_policy, record
from railwright_scheduler.attempt.failure_policy import FailurePolicy
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord

HOURLY = FailurePolicy(2, 3600)
MIDNIGHT_S = times.parse("2026-01-02T00:00:00Z")


def after(*noticed_s: int, policy: FailurePolicy = HOURLY) -> JobRecord:
    """The record of a job that failed when leaders' clocks showed these times."""
    now = JobRecord()
    for attempt, time_s in enumerate(noticed_s, start=1):
        now = replace(now, phase=Phase.QUEUED)
        cause = replace(FAILED, time_s=time_s)
        now = record.fold(now, [entry(attempt, cause=cause)], policy)
    return now


def test_failures_of_one_window_fail_the_job() -> None:
    assert after(0, 1800, 3599).phase is Phase.FAILED


def test_failures_far_apart_never_fail_the_job() -> None:
    now = after(*range(0, 100 * 1801, 1801))
    assert (now.phase, now.failures, now.failure_times_s) == (
        Phase.RECOVERING,
        100,
        (98 * 1801, 99 * 1801),
    )


def test_backoff_follows_failures_of_the_window() -> None:
    for job, backoff_s in ((after(0, 3600), 5), (after(0, 5), 10)):
        assert replace(job, start_failures=0).backoff_s == backoff_s


def test_lost_node_leaves_the_window_as_it_is() -> None:
    failed = replace(RUNNING, failure_times_s=(1, 2))
    now = record.fold(failed, [entry(cause=replace(LOST, time_s=9000))], HOURLY)
    assert (now.phase, now.failure_times_s) == (Phase.RECOVERING, (1, 2))


def test_clock_set_back_keeps_failures_in_the_window() -> None:
    """The job neither fails at once, nor gets its failures back."""
    assert after(90_000, 10).failure_times_s == (90_000, 90_000)
    assert after(90_000, 10).phase is Phase.RECOVERING
    assert after(90_000, 10, 5000).phase is Phase.FAILED


def test_clock_ahead_forgets_failures_only_once() -> None:
    year_s = 365 * 86_400
    assert after(0, 1, year_s).phase is Phase.RECOVERING
    alternating = [number + year_s * (number % 2) for number in range(4)]
    assert after(*alternating).phase is Phase.FAILED


def test_times_of_a_status_are_bounded() -> None:
    """Whoever may write a status may list more than the schema takes one more of."""
    full = FailurePolicy(failure_policy.BACKOFF_LIMIT_MAX, 86_400)
    assert len(full.with_failure(tuple(range(101)), 101)) == 101


def test_recent_failures_end_with_now() -> None:
    assert HOURLY.recent((0, 10), 3605) == (10,)
    assert HOURLY.recent((0, 10), -9000) == (0, 10)
    assert HOURLY.recent((), 5) == ()


def test_waits_between_retries_fit_every_legal_window() -> None:
    """A job that fails at once, every time, uses up its failures under any legal policy."""
    assert api.BACKOFF_S_MAX == record.BACKOFF_S_MAX
    assert api.BACKOFF_LIMIT_MAX == failure_policy.BACKOFF_LIMIT_MAX
    for limit in (0, 1, 3, 50, 100):
        least_s = max(api.WINDOW_S_MIN, limit * api.BACKOFF_S_MAX)
        policy = failure_policies.convert(
            api.FailurePolicy(backoff_limit=limit, window_seconds=least_s)
        )
        now, time_s = JobRecord(), MIDNIGHT_S
        for attempt in range(1, limit + 2):
            assert now.phase is not Phase.FAILED
            cause = replace(FAILED, time_s=time_s)
            now = record.fold(
                replace(now, phase=Phase.QUEUED), [entry(attempt, cause=cause)], policy
            )
            time_s += replace(now, start_failures=0).backoff_s
        assert now.phase is Phase.FAILED


def test_window_too_short_for_its_retries_is_refused() -> None:
    with pytest.raises(ValidationError, match="windowSeconds is 1199: expected at least 1200"):
        api.FailurePolicy(backoff_limit=4, window_seconds=1199)


def test_instants_are_read_back() -> None:
    assert times.render(MIDNIGHT_S) == "2026-01-02T00:00:00Z"
    assert times.parse("2026-01-02T01:00:00.5+01:00") == MIDNIGHT_S
