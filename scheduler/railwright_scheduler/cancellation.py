"""What cancels a job's attempt, before it is bound or while it runs: its spec, or its deadline."""

from __future__ import annotations

from railwright_scheduler.attempt.causes import Cause, CauseCode
from railwright_scheduler.attempt.ledger import Entry
from railwright_scheduler.cluster_state import ObservedJob

_DELETED = Cause(CauseCode.JOB_DELETED, "the job was deleted")
_SUSPENDED = Cause(CauseCode.SUSPENDED, "spec.suspend was set")
_SPEC_CHANGED = Cause(
    CauseCode.SUSPENDED, "its spec was changed while it was suspended; it starts again with that"
)
_CHANGED = Cause(
    CauseCode.SUSPENDED, "the job is not as it was when its gang was chosen; it starts as it is now"
)
_UNREADABLE = Cause(
    CauseCode.COMMIT_REFUSED,
    "the job's spec cannot be read any more, or is too large to create its pods from",
)


def cancels_commit(entry: Entry, seen: ObservedJob | None, *, now_s: int) -> Cause | None:
    """The cause that cancels an attempt that is being bound; None if nothing does."""
    if seen is None:
        return _DELETED
    if seen.suspend:
        return _SUSPENDED
    if _differ(entry.spec_hash, seen.spec_hash):
        return _CHANGED
    # A job that cannot be read any more has no hash: its spec may have changed.
    is_unreadable = bool(entry.spec_hash) and not seen.spec_hash
    return exceeds_deadline(seen, now_s=now_s) or (_UNREADABLE if is_unreadable else None)


def cancels_run(seen: ObservedJob) -> Cause | None:
    """The cause that cancels the running attempt; None if nothing does.

    These fields can only change while the job is suspended, which no cycle may have observed.
    """
    if seen.suspend:
        return _SUSPENDED
    record = seen.record
    if seen.job.num_pods != len(record.nodes) or _differ(record.spec_hash, seen.spec_hash):
        return _SPEC_CHANGED
    return None


def exceeds_deadline(seen: ObservedJob, *, now_s: int) -> Cause | None:
    """The cause that fails a job which has been active for as long as it may be; None before, and
    for a job that has not started since it was created or resumed."""
    started_s, deadline_s = seen.record.started_s, seen.active_deadline_s
    if started_s is None or deadline_s is None or now_s - started_s < deadline_s:
        return None
    return Cause(
        CauseCode.DEADLINE_EXCEEDED,
        f"the job has been active for {now_s - started_s} s, and its activeDeadlineSeconds is "
        f"{deadline_s}",
    )


def _differ(one: str, other: str) -> bool:
    """Whether two hashes differ. Hashes of two versions cannot be compared."""
    return one != other and one.partition("-")[0] == other.partition("-")[0]
