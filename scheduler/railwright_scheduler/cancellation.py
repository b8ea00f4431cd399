"""Which change of a job's spec cancels its attempt, before it is bound or while it runs."""

from __future__ import annotations

from railwright_scheduler.attempt.causes import Cause, CauseCode
from railwright_scheduler.attempt.ledger import Entry
from railwright_scheduler.cluster_state import ObservedJob

_DELETED = Cause(CauseCode.JOB_DELETED, "the job was deleted")
_SUSPENDED = Cause(CauseCode.SUSPENDED, "spec.suspend was set")
_RESHAPED = Cause(
    CauseCode.SUSPENDED, "its shape was changed while it was suspended; it starts again with it"
)
_CHANGED = Cause(
    CauseCode.SUSPENDED, "the job is not as it was when its gang was chosen; it starts as it is now"
)


def cancels_commit(entry: Entry, seen: ObservedJob | None) -> Cause | None:
    """The cause that cancels an attempt that is being bound; None if nothing does."""
    if seen is None:
        return _DELETED
    if seen.suspend:
        return _SUSPENDED
    # A job that cannot be read any more has no shape: it may have changed.
    unknown = bool(entry.shape) and not seen.shape
    return _CHANGED if unknown or _differ(entry.shape, seen.shape) else None


def cancels_run(seen: ObservedJob) -> Cause | None:
    """The cause that cancels the running attempt; None if nothing does.

    A shape can only be changed while the job is suspended, which no cycle may have observed.
    """
    if seen.suspend:
        return _SUSPENDED
    if seen.job.num_nodes != len(seen.record.nodes) or _differ(seen.record.shape, seen.shape):
        return _RESHAPED
    return None


def _differ(one: str, other: str) -> bool:
    """Whether two shapes differ. Shapes of two versions cannot be compared."""
    return one != other and one.partition("-")[0] == other.partition("-")[0]
