"""The record of a job: the durable part of its status that decisions depend on.

A record is derived from entries of the ledger (the begin of an attempt, its revocation and the
cause), from finished pods and from the spec. So a leader that crashes between the ledger and the
status loses nothing: the next one derives the same record from the same entries, and each attempt
is counted once, by its number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from railwright_scheduler.attempt import causes, resume_points
from railwright_scheduler.attempt.causes import NEVER_RAN, Cause, CauseCode
from railwright_scheduler.attempt.failure_policy import FailurePolicy
from railwright_scheduler.attempt.ledger import Entry, EntryState
from railwright_scheduler.attempt.phases import FINAL, Phase, move
from railwright_scheduler.attempt.resume_points import GroupReport, ResumePoint
from railwright_scheduler.model.rank_layout import RankLayout
from railwright_scheduler.model.snapshot import Purpose

BACKOFF_S_FIRST = 5
BACKOFF_S_MAX = 300

AT_ONCE = frozenset(
    {
        CauseCode.NODE_LOST,
        CauseCode.REMAPPED,
        CauseCode.PROFILED,
        CauseCode.SUSPENDED,
        CauseCode.JOB_DELETED,
    }
)
"""Causes after which the next attempt does not wait."""

STOPPED = frozenset({CauseCode.SUSPENDED, CauseCode.JOB_DELETED})
"""Causes after which the user decides whether another attempt follows."""

NEVER_COMMITTING = FINAL | {Phase.RUNNING}
"""Phases that no job has while its newest attempt is being bound, or was never bound."""

PRE_RUNS_MAX = 3
"""Pre-runs of one spec that may end by causes that are not their fault."""


@dataclass(frozen=True, slots=True)
class PreRunRecord:
    """The pre-run with this ``spec_hash`` that a job needs. ``attempts`` of it ended without a
    profile; ``given_up`` is why no other follows, empty while one does."""

    spec_hash: str
    attempts: int = 0
    given_up: str = ""


@dataclass(frozen=True, slots=True)
class JobRecord:
    """``attempt`` is the newest ever committed, ``ended`` the newest that is over.

    ``nodes[r]`` is the node of node rank r in ``attempt``, ``spec_hash`` that of the spec its pods
    were made from; empty if unknown. ``restarts`` counts attempts that ended after all of their
    pods had been bound, and that another one followed, ``moves`` those that were ended for a better
    place, ``failures`` those that count against the budget; ``failure_times_s`` are those of the
    window that ended with the last of them. ``start_failures`` counts those in a row that ended
    before every rank was there, ``hangs`` those that hung since the group that trains committed a
    checkpoint of a later step than all before. ``checkpoints`` has the points of all groups, from
    the newest attempt to the oldest. None of these counts a pre-run, and checkpoints of a pre-run
    are never read. ``pre_run`` is None as long
    as the job needs none. ``started_s`` is when every rank first passed the barrier since the job
    was created or resumed, in seconds since 1970; None before.
    """

    phase: Phase = Phase.QUEUED
    attempt: int = 0
    ended: int = 0
    nodes: tuple[str, ...] = ()
    spec_hash: str = ""
    restarts: int = 0
    moves: int = 0
    failures: int = 0
    failure_times_s: tuple[int, ...] = ()
    start_failures: int = 0
    hangs: int = 0
    last_termination: Cause | None = None
    checkpoints: tuple[ResumePoint, ...] = ()
    pre_run: PreRunRecord | None = None
    started_s: int | None = None

    @property
    def live(self) -> bool:
        """Whether an attempt was committed and is not over."""
        return self.attempt > self.ended

    @property
    def backoff_s(self) -> int:
        """The back-off between the end of the last attempt and the next one.

        It doubles with each failure of the window, with each hang in a row, and with each end
        before the barrier, so that a job that never starts does not churn the cluster. The loss of
        a node causes no back-off.
        """
        if self.last_termination is None or self.last_termination.code in AT_ONCE:
            return 0
        failures = len(self.failure_times_s) if self.last_termination.counted else 0
        ends = max(self.start_failures, failures)
        if self.last_termination.code is CauseCode.HUNG:
            ends = max(ends, self.hangs)
        return min(BACKOFF_S_FIRST << min(ends - 1, 16), BACKOFF_S_MAX) if ends else 0


def specs_differ(one: str, other: str) -> bool:
    """Whether the specs with these hashes differ. Hashes of two versions cannot be compared."""
    return one != other and one.partition("-")[0] == other.partition("-")[0]


def reconcile(record: JobRecord, entries: Sequence[Entry]) -> JobRecord:
    """Correct a record that contradicts the job's entries, which are oldest first.

    An attempt is committed only once the one before it is over, and an entry leaves only once its
    end is recorded. A status that contradicts this was forged or is older than the ledger: then the
    ledger counts, and the newest entry is applied again.
    """
    if not entries:
        return record
    newest = entries[-1]
    before = newest.attempt - 1
    ran = newest.cause is not None and newest.cause.code not in NEVER_RAN
    if record.ended == before and record.phase not in (FINAL if ran else NEVER_COMMITTING):
        return record
    if record.ended > before and newest.state is EntryState.ABORTING:
        return record
    return replace(_over(record, before, Phase.QUEUED), attempt=before)


def fold(record: JobRecord, entries: Iterable[Entry], policy: FailurePolicy) -> JobRecord:
    """The record once these entries of the job, oldest first, are written in the ledger."""
    for entry in entries:
        if entry.attempt > record.attempt:
            record = _began(record, entry)
        if entry.state is EntryState.ABORTING and entry.attempt > record.ended:
            assert entry.cause is not None
            record = _revoked(record, entry.attempt, entry.cause, policy)
    return record


def started(record: JobRecord, *, now_s: int) -> JobRecord:
    """Every rank of the live attempt passed the barrier."""
    return replace(
        record,
        phase=move(record.phase, Phase.RUNNING),
        start_failures=0,
        started_s=now_s if record.started_s is None else record.started_s,
    )


def correct_start(record: JobRecord, *, now_s: int) -> JobRecord:
    """The record, started now if it says later: a leader whose clock was ahead wrote that. The
    job's deadline would be as much later."""
    is_later = record.started_s is not None and record.started_s > now_s
    return replace(record, started_s=now_s) if is_later else record


def succeeded(record: JobRecord) -> JobRecord:
    """Every rank of the live attempt ended with 0."""
    return _over(record, record.attempt, move(record.phase, Phase.SUCCEEDED))


def ending(before: JobRecord, after: JobRecord) -> Cause | None:
    """The cause of an attempt's end between two records; None if none ended, or it succeeded."""
    ended = after.ended > before.ended and after.phase is not Phase.SUCCEEDED
    return after.last_termination if ended else None


def derive_waiting(record: JobRecord, *, suspend: bool, waits: bool) -> JobRecord:
    """The record of a job without a live attempt, by its spec and the queue."""
    if record.live or record.phase in FINAL:
        return record
    if suspend:
        return replace(record, phase=move(record.phase, Phase.SUSPENDED), started_s=None)
    if record.phase is Phase.SUSPENDED or (record.phase is Phase.RECOVERING and waits):
        return replace(record, phase=move(record.phase, Phase.QUEUED))
    return record


def reported(record: JobRecord, reports: Iterable[GroupReport], layout: RankLayout) -> JobRecord:
    """The record with what the groups of the live attempt reported of their checkpoints. A pre-run
    has none that counts."""
    if not record.live or record.phase is Phase.PROFILING:
        return record
    trains, points, hangs = layout.training.group, record.checkpoints, record.hangs
    furthest = max((point.step for point in points if point.group == trains), default=0)
    for report in reports:
        if report.committed is not None:
            committed = ResumePoint(report.group, record.attempt, report.committed)
            points = resume_points.raised(points, committed, groups=layout.masters)
            hangs = 0 if report.group == trains and committed.step > furthest else hangs
        if report.resumed_from is not None:
            points = resume_points.lowered(points, report.resumed_from, attempt=record.attempt)
    return replace(record, checkpoints=points, hangs=hangs)


def _began(record: JobRecord, entry: Entry) -> JobRecord:
    is_pre_run = entry.purpose is Purpose.PRE_RUN
    recovers = record.phase is Phase.RECOVERING
    queued = record.phase is Phase.SUSPENDED or (recovers and is_pre_run)
    source = move(record.phase, Phase.QUEUED) if queued else record.phase
    return replace(
        record,
        phase=move(source, Phase.PROFILING if is_pre_run else Phase.STARTING),
        attempt=entry.attempt,
        nodes=entry.nodes,
        spec_hash=entry.spec_hash,
    )


def _revoked(record: JobRecord, attempt: int, cause: Cause, policy: FailurePolicy) -> JobRecord:
    if record.phase is Phase.PROFILING and cause.code is not CauseCode.DEADLINE_EXCEEDED:
        return _profiled(record, attempt, cause)
    hangs = record.hangs + (cause.code is CauseCode.HUNG)
    counted = cause.counted or (cause.code is CauseCode.HUNG and hangs > causes.HANGS_FREE)
    failures = record.failure_times_s
    if counted:
        failures = policy.with_failure(failures, cause.time_s)
    stopped = cause.code in STOPPED
    ran = cause.code not in NEVER_RAN and not stopped
    if stopped:
        phase = Phase.SUSPENDED
    elif cause.code in causes.FINAL_CAUSES or (counted and policy.is_exceeded(failures)):
        phase = Phase.FAILED
    else:
        phase = Phase.RECOVERING if ran else Phase.QUEUED
    return replace(
        _ended(record, attempt, cause, phase),
        restarts=record.restarts + (ran and phase is not Phase.FAILED),
        moves=record.moves + (cause.code is CauseCode.REMAPPED),
        failures=record.failures + counted,
        failure_times_s=failures,
        hangs=hangs,
        start_failures=record.start_failures + 1
        if record.phase is Phase.STARTING and not stopped
        else 0,
    )


def _profiled(record: JobRecord, attempt: int, cause: Cause) -> JobRecord:
    """The record after a pre-run, which spends no budget. Another one of the same spec follows only
    a cause that is not its fault."""
    stopped = cause.code in STOPPED
    now = _ended(record, attempt, cause, Phase.SUSPENDED if stopped else Phase.QUEUED)
    held = record.pre_run or PreRunRecord(record.spec_hash)
    if stopped or cause.code is CauseCode.PROFILED:
        return now
    attempts = held.attempts + 1
    is_last = cause.code not in causes.PRE_RUN_RETRIED or attempts >= PRE_RUNS_MAX
    why = f"the pre-run ended in attempt {attempt}: {cause.message}"
    return replace(now, pre_run=replace(held, attempts=attempts, given_up=why if is_last else ""))


def _ended(record: JobRecord, attempt: int, cause: Cause, phase: Phase) -> JobRecord:
    return replace(
        _over(record, attempt, move(record.phase, phase)),
        last_termination=cause,
        # A leader that cannot read a job ends its attempt as that of a deleted one.
        started_s=None if cause.code is CauseCode.SUSPENDED else record.started_s,
    )


def _over(record: JobRecord, ended: int, phase: Phase) -> JobRecord:
    """The record in this phase, without a live attempt: this one has ended."""
    return replace(record, phase=phase, ended=ended, nodes=(), spec_hash="")
