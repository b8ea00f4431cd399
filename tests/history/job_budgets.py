"""Invariants I7, I18, I24 and I25 of one job: what its record counts, against the causes for which
its attempts were revoked. A job fails when it has more failures in a window than its policy allows,
was active for as long as its deadline, or has an image that is not there; and not before.

Which causes count is stated here by the table of the glossary ("Why an attempt ended"), and not
taken from the scheduler: lost nodes, evictions, deleted pods and refused commits spend nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from railwright_scheduler.attempt.causes import Cause
from railwright_scheduler.attempt.failure_policy import FailurePolicy
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord

SPENDING = frozenset({"OutOfMemory", "PodRejected", "RankFailed", "StartTimedOut"})
"""Causes that lie in the job: each spends its budget."""

HUNG, HANGS_KEPT = "Hung", 3
"""The first hangs without a further checkpoint between them spend nothing; each further one spends
the budget."""

DEADLINE = "DeadlineExceeded"
ENDING = frozenset({DEADLINE, "ImageNotFound"})
"""Causes that end the job, whatever its budget."""

REMAPPED = "Remapped"


@dataclass(frozen=True, slots=True)
class PolicyRange:
    """What a job was promised while it existed: users may change its policy and its deadline.

    With the policy ``latest`` it fails no earlier than with any that it had, with ``earliest`` no
    later; ``deadline_s`` is its shortest deadline, None if it had none.
    """

    latest: FailurePolicy
    earliest: FailurePolicy
    deadline_s: int | None

    def changed(self, policy: FailurePolicy, deadline_s: int | None) -> PolicyRange:
        """The range with one more version of its spec."""
        backoffs = self.latest.backoff_limit, self.earliest.backoff_limit, policy.backoff_limit
        windows = self.latest.window_s, self.earliest.window_s, policy.window_s
        deadlines = [each for each in (self.deadline_s, deadline_s) if each is not None]
        return replace(
            self,
            latest=FailurePolicy(max(backoffs), min(windows)),
            earliest=FailurePolicy(min(backoffs), max(windows)),
            deadline_s=min(deadlines, default=None),
        )


def violations(
    uid: str, record: JobRecord, allowed: PolicyRange, causes: Sequence[Cause]
) -> Iterator[str]:
    """The violations of one job whose attempts were revoked for these causes, oldest first;
    pre-runs are none of them."""
    counted = sum(cause.code in SPENDING for cause in causes) + _further_hangs(causes)
    if record.failures > counted:
        yield f"I7: {uid} has {record.failures} failures, {counted} of its attempts counted"
    if record.restarts > len(causes):
        yield f"I7: {uid} has {record.restarts} restarts, {len(causes)} attempts were revoked"
    if record.phase is Phase.FAILED:
        yield from _failed(uid, record, allowed, causes)
    else:
        counts = _counts(causes, allowed.latest)
        if max(counts, default=0) > allowed.latest.backoff_limit + 1:
            yield f"I24: {uid} lives, and failed {counts} times under {allowed.latest}"


def move_violations(uid: str, causes: Iterable[Cause], *, news: int) -> Iterator[str]:
    """I18: a job is moved no more often than there was ``news`` of links."""
    moves = sum(cause.code == REMAPPED for cause in causes)
    if moves > news:
        yield f"I18: {uid} was moved {moves} times, and {news} times there was news"


def deadline_violations(uid: str, record: JobRecord, allowed: PolicyRange) -> Iterator[str]:
    """The violations of I25 that one revision of a job's record shows, by the clocks of leaders."""
    started_s, last, deadline_s = record.started_s, record.last_termination, allowed.deadline_s
    if record.phase is Phase.SUSPENDED and started_s is not None:
        yield f"I25: {uid} is suspended, and started at {started_s}"
    if last is None or last.code != DEADLINE or record.phase is not Phase.FAILED:
        return
    if started_s is None or deadline_s is None or last.time_s - started_s < deadline_s:
        yield f"I25: {uid} failed after {last}, started at {started_s}, deadline {deadline_s}"


def _failed(
    uid: str, record: JobRecord, allowed: PolicyRange, causes: Sequence[Cause]
) -> Iterator[str]:
    """I24, of a job that is Failed: what its last attempt ended with ends a job, or spends its
    budget and is one too many."""
    last, further = record.last_termination, _further_hangs(causes)
    if last is not None and last.code in ENDING:
        return
    if last is None or last.code not in {*SPENDING, HUNG}:
        yield f"I24: {uid} is Failed after {last}, which ends no job"
        return
    if not causes or causes[-1].code != last.code:
        yield f"I24: {uid} is Failed after {last}, its last attempt ended with {causes[-1:]}"
        return
    # Which hangs count depends on checkpoints, and with it which failures are in one window.
    counts = _counts(causes, allowed.earliest)
    used = len(counts) + further if further else max(counts[-1:], default=0)
    if used <= allowed.earliest.backoff_limit or (last.code == HUNG and not further):
        policy = allowed.earliest
        yield f"I24: {uid} is Failed after {last}, and failed {counts} times under {policy}"


def _further_hangs(causes: Sequence[Cause]) -> int:
    return max(0, sum(cause.code == HUNG for cause in causes) - HANGS_KEPT)


def _counts(causes: Sequence[Cause], policy: FailurePolicy) -> list[int]:
    """How many failures are in the window that ends with each one that spends budget."""
    times_s = [*accumulate((c.time_s for c in causes if c.code in SPENDING), max)]
    windows = (times_s[: count + 1] for count in range(len(times_s)))
    return [sum(its[-1] - at_s < policy.window_s for at_s in its) for its in windows]
