"""Invariant I24: a job fails when it has more failures in a window than it may have, not before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from railwright_scheduler.attempt.causes import Cause, CauseCode
from railwright_scheduler.attempt.failure_policy import FailurePolicy
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord


def violations(
    uid: str, record: JobRecord, policy: FailurePolicy, causes: Sequence[Cause]
) -> Iterator[str]:
    """What breaks it for one job whose attempts were revoked for these causes, oldest first.

    Which hangs count depends on checkpoints: they may explain a failed job, and no living one.
    """
    times_s = [*accumulate((cause.time_s for cause in causes if cause.counted), max)]
    windows = (times_s[: count + 1] for count in range(len(times_s)))
    counts = [sum(its[-1] - at_s < policy.window_s for at_s in its) for its in windows]
    hangs, last = sum(cause.code is CauseCode.HUNG for cause in causes), record.last_termination
    if record.phase is not Phase.FAILED:
        if max(counts, default=0) > policy.backoff_limit + 1:
            yield f"I24: {uid} lives, and failed at {times_s} under {policy}"
    elif last is not None and last.counted and counts[-1] + hangs <= policy.backoff_limit:
        yield f"I24: {uid} is Failed, and failed at {times_s} under {policy}"
