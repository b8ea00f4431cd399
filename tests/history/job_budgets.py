"""Invariants I7, I18, I24 and I25 of one job: what its record counts, against the causes for which
its attempts were revoked. A job fails when it has more failures in a window than its policy allows,
or was active for as long as its deadline, and not before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from railwright_scheduler.attempt.causes import HANGS_FREE, Cause, CauseCode
from railwright_scheduler.attempt.failure_policy import FailurePolicy
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord


def violations(
    uid: str,
    record: JobRecord,
    policy: FailurePolicy,
    causes: Sequence[Cause],
    *,
    news: int | None,
) -> Iterator[str]:
    """The violations of one job whose attempts were revoked for these causes, oldest first.
    ``news`` is how often links changed; None if that is not counted."""
    hangs = sum(cause.code is CauseCode.HUNG for cause in causes)
    counted = sum(cause.counted for cause in causes) + max(0, hangs - HANGS_FREE)
    if record.failures > counted:
        yield f"I7: {uid} has {record.failures} failures, {counted} of its attempts counted"
    moves = sum(cause.code is CauseCode.REMAPPED for cause in causes)
    if news is not None and moves > news:
        yield f"I18: {uid} was moved {moves} times, and {news} times there was news"
    if record.restarts > len(causes):
        yield f"I7: {uid} has {record.restarts} restarts, {len(causes)} attempts were revoked"
    yield from _window(uid, record, policy, causes)


def deadline_violations(uid: str, record: JobRecord, deadline_s: int | None) -> Iterator[str]:
    """The violations of I25 that one revision of a job's record shows, by the clocks of leaders."""
    started_s, last = record.started_s, record.last_termination
    if record.phase is Phase.SUSPENDED and started_s is not None:
        yield f"I25: {uid} is suspended, and started at {started_s}"
    exceeded = last is not None and last.code is CauseCode.DEADLINE_EXCEEDED
    if last is None or not exceeded or record.phase is not Phase.FAILED:
        return
    if started_s is None or deadline_s is None or last.time_s - started_s < deadline_s:
        yield f"I25: {uid} failed after {last}, started at {started_s}, deadline {deadline_s}"


def _window(
    uid: str, record: JobRecord, policy: FailurePolicy, causes: Sequence[Cause]
) -> Iterator[str]:
    """I24. Which hangs count depends on checkpoints: they may explain a failed job, and no living
    one."""
    times_s = [*accumulate((cause.time_s for cause in causes if cause.counted), max)]
    windows = (times_s[: count + 1] for count in range(len(times_s)))
    counts = [sum(its[-1] - at_s < policy.window_s for at_s in its) for its in windows]
    hangs, last = sum(cause.code is CauseCode.HUNG for cause in causes), record.last_termination
    if record.phase is not Phase.FAILED:
        if max(counts, default=0) > policy.backoff_limit + 1:
            yield f"I24: {uid} lives, and failed at {times_s} under {policy}"
    elif last is not None and last.counted and counts[-1] + hangs <= policy.backoff_limit:
        yield f"I24: {uid} is Failed, and failed at {times_s} under {policy}"
