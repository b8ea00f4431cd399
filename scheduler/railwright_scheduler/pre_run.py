"""Pre-runs: an attempt of a job on fewer nodes that records the traffic of its ranks.

A pre-run has the job's tensor, context, pipeline and expert parallelism, the fewest data-parallel
replicas that represent all of them, and the same work for each. The location of nodes hardly
changes the traffic, so it has no topology constraints. ``resolve`` returns a job as its attempt has
it; the rest of the scheduler handles a pre-run like any other attempt. A pre-run that fails, or
does not record in time, is given up with the reason, and the job starts without a profile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from railwright_scheduler.attempt.assessment import Assessment, Ended, Ongoing, Succeeded
from railwright_scheduler.attempt.causes import Cause, CauseCode
from railwright_scheduler.attempt.ledger import Entry
from railwright_scheduler.attempt.phases import FINAL, Phase
from railwright_scheduler.attempt.record import JobRecord, PreRunRecord, specs_differ
from railwright_scheduler.cluster_state import ObservedJob
from railwright_scheduler.communication import measured
from railwright_scheduler.model.snapshot import NO_CONSTRAINTS, Job, Purpose

RECORDS_S = 1500.0
"""How long after it was bound a pre-run may take to record: a start may take ten minutes, and two
steps come before those that are recorded."""

RANKS_MAX = 256
"""Ranks of an attempt that records: merging the recordings of more ranks takes too long."""

_NEVER_TRAINED = (CauseCode.SUSPENDED, CauseCode.PROFILED, CauseCode.NOT_PROFILED)
"""Causes of the last end of a job that did not train since it was submitted or suspended."""

_PROFILED = Cause(CauseCode.PROFILED, "the profile is stored")
_NOT_REQUESTED = Cause(
    CauseCode.SUSPENDED, "profiling.preRun was set to Never; the job starts without"
)
_OVER = Cause(CauseCode.NOT_PROFILED, "not all of its ranks had recorded their steps when it ended")
_LATE = Cause(
    CauseCode.NOT_PROFILED,
    f"it has not recorded within {RECORDS_S / 60:.0f} min; only scripts that report their steps "
    "can be recorded",
)


def resolve(seen: ObservedJob, entries: Sequence[Entry]) -> ObservedJob:
    """The job as its attempt has it, which is live, in the ledger or pending; its record has the
    pre-run that it needs. ``entries`` are its own, oldest first. Raises UnfitError."""
    record = replace(seen.record, pre_run=_needed(seen))
    seen = replace(seen, record=record)
    if entries and entries[-1].attempt > record.attempt:
        is_pre_run = entries[-1].purpose is Purpose.PRE_RUN
    elif record.live:
        is_pre_run = record.phase is Phase.PROFILING
    else:
        is_pre_run = record.pre_run is not None and not record.pre_run.given_up
    job = _smaller(seen.job) if is_pre_run else None
    if job is None:
        return seen
    return replace(seen, job=job, spec_hash=seen.pre_run.spec_hash if seen.pre_run else "")


def _needed(seen: ObservedJob) -> PreRunRecord | None:
    """The pre-run that the job needs before it starts, also if it was given up; None if it needs
    none. A job that lost its nodes, or migrates, starts again at once, unless it was suspended."""
    held, request, record = seen.record.pre_run, seen.pre_run, seen.record
    if record.live or record.phase in FINAL:
        return held
    if request is None or request.profiled:
        return None
    if held is not None and not specs_differ(held.spec_hash, request.spec_hash):
        return replace(held, spec_hash=request.spec_hash or held.spec_hash)
    job = _smaller(seen.job) if held is not None or _loses_no_time(record) else None
    if job is None:
        return None
    ranks = sum(role.replicas * role.ranks_per_pod for role in job.roles)
    why = f"a pre-run would have {ranks} ranks: at most {RANKS_MAX} can be recorded"
    return PreRunRecord(request.spec_hash, given_up=why if ranks > RANKS_MAX else "")


def _loses_no_time(record: JobRecord) -> bool:
    last = record.last_termination
    return record.phase is Phase.SUSPENDED or last is None or last.code in _NEVER_TRAINED


def _smaller(job: Job) -> Job | None:
    """The job as its pre-run has it, with the role that trains alone; None if that would be no
    smaller, or without a workload."""
    if job.training is None:
        return None
    role, _ = job.training
    workload = role.workload
    if workload is None:
        return None
    split = measured.smallest(workload, multiple=role.ranks_per_pod)
    whole = workload.split.data
    if split.data == whole:
        return None
    batch = workload.recipe.global_batch // whole * split.data
    recipe = replace(workload.recipe, global_batch=batch)
    smaller = replace(
        role,
        replicas=role.replicas * split.data // whole,
        workload=replace(workload, split=split, recipe=recipe, profile=None),
        constraints=NO_CONSTRAINTS,
    )
    return replace(job, roles=(smaller,), purpose=Purpose.PRE_RUN)


def assess(seen: ObservedJob, verdict: Assessment) -> Assessment:
    """Assess a running pre-run, given the verdict on it as an attempt. It ends once its profile is
    stored."""
    request = seen.pre_run
    if request is None:
        return Ended(_NOT_REQUESTED)
    if request.profiled:
        return Ended(_PROFILED)
    if request.error:
        why = f"what it recorded cannot stand for the job: {request.error}"
        return Ended(Cause(CauseCode.NOT_PROFILED, why))
    if isinstance(verdict, Succeeded):
        # The last recordings may still be in transit.
        return Ongoing() if any(rank.responsive for rank in seen.ranks) else Ended(_OVER)
    late = isinstance(verdict, Ongoing) and seen.bound_age_s > RECORDS_S
    return Ended(_LATE) if late else verdict
