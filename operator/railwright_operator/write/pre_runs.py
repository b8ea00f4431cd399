"""The pre-run that a job requests, and the number of steps that its ranks record."""

from __future__ import annotations

from railwright_conversion import workloads
from railwright_operator.watch.jobs import CachedJob
from railwright_scheduler.attempt.ledger import Entry
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.cluster_state import ObservedPreRun
from railwright_scheduler.model.snapshot import Purpose
from railwright_scheduler.pre_run import RANKS_MAX

STEPS = 3
"""The number of recorded steps if the job does not state it."""


def requested(cached: CachedJob) -> ObservedPreRun | None:
    """The pre-run that the job requests; None if it requests none."""
    if cached.job.spec.profiling.pre_run == "Never" or cached.workload is None:
        return None
    is_profiled = cached.workload.profile is not None
    error = "" if is_profiled else _profile_error(cached)
    return ObservedPreRun(cached.pre_run_hash, profiled=is_profiled, error=error)


def steps(cached: CachedJob, entry: Entry) -> int:
    """The number of steps that ranks of the attempt record: that of the job's spec. If the spec has
    none: a few in a pre-run, and in a job with pre-runs that starts without a profile, or with one
    of other devices."""
    spec, workload = cached.job.spec, cached.workload
    profiling = spec.profiling
    if profiling.steps or profiling.pre_run == "Never":
        return profiling.steps
    if entry.purpose is Purpose.PRE_RUN:
        return STEPS
    is_too_large = spec.training_role.ranks > RANKS_MAX
    if is_too_large or workload is None or spec.workload is None or spec.workload.profile:
        return 0
    # An opaque workload has no score without a profile of its devices.
    is_aside = entry.score.other_devices != () if entry.score else workload.model is None
    return STEPS if workload.profile is None or is_aside else 0


def _profile_error(cached: CachedJob) -> str:
    """Why the profile that a live pre-run recorded does not fit the job; empty if it has not
    recorded one."""
    workload, profile, record = cached.job.spec.workload, cached.profile, cached.record
    assert workload is not None, cached.uid
    is_own = profile is not None and profile.attempt == record.attempt
    if profile is None or not is_own or record.phase is not Phase.PROFILING:
        return ""
    try:
        workloads.convert(workload, cached.job.spec.training_role.ranks, profile.document)
    except ValueError as error:
        return str(error)
    return ""
