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
    # While a pre-run is live, the status has the profile of that alone.
    is_unfit = cached.record.phase is Phase.PROFILING and cached.profile and not is_profiled
    return ObservedPreRun(
        cached.pre_run_hash, profiled=is_profiled, error=_profile_error(cached) if is_unfit else ""
    )


def steps(cached: CachedJob, entry: Entry) -> int:
    """The number of steps that ranks of the attempt record: that of the job's spec. If the spec has
    none: a few in a pre-run, and in a job with pre-runs that starts without a profile, or with one
    of other devices."""
    spec, profiling, workload = cached.job.spec, cached.job.spec.profiling, cached.workload
    if profiling.steps or profiling.pre_run == "Never":
        return profiling.steps
    if entry.purpose is Purpose.PRE_RUN:
        return STEPS
    is_too_large = spec.num_nodes * spec.num_proc_per_node > RANKS_MAX
    if is_too_large or workload is None or spec.workload is None or spec.workload.profile:
        return 0
    is_aside = entry.score is not None and entry.score.other_devices != ()
    return STEPS if workload.profile is None or is_aside else 0


def _profile_error(cached: CachedJob) -> str:
    """Why the recorded profile does not fit the job."""
    workload = cached.job.spec.workload
    assert workload is not None, cached.uid
    try:
        workloads.workload(workload.model_copy(update={"profile": cached.profile}))
    except ValueError as error:
        return str(error)
    return ""
