"""Pre-runs: create small jobs that record a profile ahead of large jobs, and wait for them.

A pre-run is a TrainingJob of its own: it is queued, runs and ends as any other, and is owned by the
job that it runs ahead of. Its state is in its own object and in that job's status, so a new leader
continues from there. A pre-run does not prevent the start of its job: if it fails, is refused or
deleted, or does not record in time, the operator gives it up once, with the reason, and the job
starts without a profile.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import KW_ONLY, dataclass
from random import Random
from typing import Any

from railwright_api import names
from railwright_api.workload import RECORDED_RANKS_MAX
from railwright_conversion import workloads
from railwright_operator.backoff import Pauses
from railwright_operator.kube import bodies, errors, paths
from railwright_operator.kube.client import Api
from railwright_operator.watch.ages import Ages
from railwright_operator.watch.jobs import CachedJob, Jobs
from railwright_operator.write import pre_runs
from railwright_operator.write.executor import FOR_GOOD
from railwright_operator.write.pre_runs import PreRunPlan
from railwright_scheduler.attempt.causes import CauseCode
from railwright_scheduler.attempt.phases import FINAL, Phase
from railwright_scheduler.isolation import Isolation, Stage
from railwright_scheduler.model.decisions import PreRunAhead

logger = logging.getLogger(__name__)

RECORDS_S = 1500.0
"""How long after the begin of its first attempt a pre-run may take to record: a start may take ten
minutes, and two steps precede the recorded ones. Time in the queue does not count: its job, which
needs more of the same resources, would wait longer."""

MADE_S = 120.0
"""How long the operator tries to create a pre-run."""

UNDER_WAY_MAX = 16

PAUSE_BASE_S = 0.5
PAUSE_CAP_S = 8.0


@dataclass(frozen=True, slots=True)
class End:
    """The end of a pre-run without a profile; ``of`` is the digest of its spec."""

    of: str
    message: str


@dataclass(frozen=True, slots=True)
class PreRunStatus:
    """The status of a job's pre-run: the reason why the job is ``held``, the recorded ``profile``,
    or the ``end`` of a pre-run without one."""

    held: PreRunAhead | None = None
    profile: str = ""
    end: End | None = None


NO_PRE_RUN = PreRunStatus()

Request = Callable[[], Awaitable[None]]


@dataclass(eq=False)
class PreRuns:
    """The pre-run status of each job, and the requests that follow."""

    api: Api
    _: KW_ONLY
    jobs: Jobs
    wake: Callable[[], None]
    clock: Callable[[], float]
    rng: Random

    def __post_init__(self) -> None:
        self._ages = Ages(self.clock)
        self._pauses: Pauses[str] = Pauses(
            base_s=PAUSE_BASE_S, cap_s=PAUSE_CAP_S, clock=self.clock, rng=self.rng
        )
        self._statuses: dict[str, PreRunStatus] = {}
        self._due: dict[str, Request] = {}
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._plans: dict[str, tuple[int, PreRunPlan | None]] = {}
        self._made: set[str] = set()
        self._leaving: set[str] = set()
        self._rested: set[str] = set()
        self._refusals: dict[str, End] = {}
        self._troubles: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"<PreRuns jobs={len(self._statuses)} under way={len(self._under_way)}>"

    def of(self, job_uid: str) -> PreRunStatus:
        """The pre-run status of a job, as of the last update."""
        return self._statuses.get(job_uid, NO_PRE_RUN)

    def update(self, jobs: Mapping[str, CachedJob], isolation: Isolation) -> None:
        """Update the status of each of these jobs, by UID, and the requests that follow."""
        self._ages.begin_cycle()
        self._leaving.intersection_update(jobs)
        ahead = {cached.ahead_of: cached for cached in jobs.values() if _is_ahead(cached, jobs)}
        self._rested |= {cached.uid for cached in jobs.values() if cached.job.spec.suspend}
        self._rested -= {cached.uid for cached in jobs.values() if cached.record.live}
        self._due.clear()
        self._statuses = {
            job.uid: isolation.run(
                Stage.OBSERVATION,
                job.uid,
                functools.partial(self._assess, job, ahead.get(job.uid)),
                otherwise=self.of(job.uid),
            )
            for job in jobs.values()
            if job.job.spec.profiling.pre_run == "Auto" or job.uid in ahead
        }
        self._forget_all_but(self._statuses.keys())
        self._ages.end_cycle()

    def start_requests(self) -> None:
        """Start due requests that are not in flight or paused, up to ``UNDER_WAY_MAX``."""
        for uid, request in self._due.items():
            if len(self._under_way) >= UNDER_WAY_MAX:
                return
            if uid not in self._under_way and self._pauses.over(uid):
                task = asyncio.create_task(self._one(uid, request))
                self._under_way[uid] = task
                task.add_done_callback(functools.partial(self._done, uid))

    def _forget_all_but(self, uids: Collection[str]) -> None:
        self._plans = {uid: plan for uid, plan in self._plans.items() if uid in uids}
        self._made.intersection_update(uids)
        self._rested.intersection_update(uids)
        self._refusals = {uid: end for uid, end in self._refusals.items() if uid in uids}
        self._troubles = {uid: why for uid, why in self._troubles.items() if uid in uids}
        self._pauses.forget_unless(uids.__contains__)

    def _assess(self, job: CachedJob, ahead: CachedJob | None) -> PreRunStatus:
        if self.jobs.why_unreadable(job.uid) is not None:
            return self.of(job.uid)
        end = _end(job)
        plan = self._plan(job) if self._is_wanted(job, ahead) else None
        if plan is None or (end is not None and end.of == plan.of):
            return PreRunStatus(end=self._let_go(job, ahead, end))
        held = PreRunAhead(plan.name, plan.nodes, *_progress(ahead))
        if ahead is None:
            return self._missing(job, plan, held)
        if _digest(ahead) != plan.of or ahead.uid in self._leaving:
            self._made.discard(job.uid)
            self._remove(job, ahead)
            trouble, leaving_s = self._troubles.get(job.uid), self._ages.of("leaving", ahead.uid)
            if trouble and leaving_s > MADE_S:
                why = f"could not be made anew in {MADE_S:.0f} s: {trouble}"
                return PreRunStatus(held, end=_given_up(plan, why))
            return PreRunStatus(held)
        self._made.add(job.uid)
        if not self._is_over(ahead):
            return PreRunStatus(held)
        why = _unfit(job, ahead.profile) if ahead.profile else _why_nothing(ahead)
        if why:
            return PreRunStatus(held, end=_given_up(plan, why))
        return PreRunStatus(held, ahead.profile)

    def _is_wanted(self, job: CachedJob, ahead: CachedJob | None) -> bool:
        """Whether the job is to start and has no profile. A job that lost its nodes or migrates
        goes on at once, unless it was suspended since."""
        spec, record = job.job.spec, job.record
        is_off = spec.profiling.pre_run == "Never" or spec.suspend
        if is_off or record.live or record.phase in FINAL:
            return False
        ran = (
            record.last_termination is not None
            and record.last_termination.code is not CauseCode.SUSPENDED
        )
        if ran and job.uid not in self._rested and ahead is None:
            return False
        return job.workload is not None and not _is_recorded(job)

    def _let_go(self, job: CachedJob, ahead: CachedJob | None, end: End | None) -> End | None:
        """Remove the pre-run of a job that needs none now; return the end of its last one."""
        self._made.discard(job.uid)
        requested = job.job.spec.profiling.pre_run == "Auto"
        # A finished pre-run is kept for its logs while its job has pre-runs enabled.
        if ahead is not None and not (requested and ahead.record.phase in FINAL):
            self._remove(job, ahead)
        return end if requested and not _is_recorded(job) else None

    def _missing(self, job: CachedJob, plan: PreRunPlan, held: PreRunAhead) -> PreRunStatus:
        """The status without a pre-run: create one, unless that is impossible or it was deleted."""
        refused, trouble = self._refusals.get(job.uid), self._troubles.get(job.uid, "")
        unmade_s = self._ages.of("unmade", job.uid)
        if refused is not None and refused.of == plan.of:
            return PreRunStatus(held, end=refused)
        why = ""
        if plan.ranks > RECORDED_RANKS_MAX:
            why = f"would have {plan.ranks} ranks: at most {RECORDED_RANKS_MAX} can be recorded"
        elif job.uid in self._made:
            why = "was deleted"
        elif trouble and unmade_s > MADE_S:
            why = f"could not be made in {MADE_S:.0f} s: {trouble}"
        if why:
            return PreRunStatus(held, end=_given_up(plan, why))
        self._due[job.uid] = functools.partial(self._make, job, plan)
        return PreRunStatus(held)

    def _is_over(self, ahead: CachedJob) -> bool:
        """Whether the pre-run has ended or is late; time in the queue does not count."""
        if ahead.record.phase in FINAL or ahead.job.spec.suspend:
            return True
        return ahead.record.attempt > 0 and self._ages.of("begun", ahead.uid) > RECORDS_S

    def _plan(self, job: CachedJob) -> PreRunPlan | None:
        held = self._plans.get(job.uid)
        if held is not None and held[0] == job.generation:
            return held[1]
        plan = pre_runs.plan(job)
        self._plans[job.uid] = job.generation, plan
        return plan

    def _remove(self, job: CachedJob, ahead: CachedJob) -> None:
        self._leaving.add(ahead.uid)
        self._due[job.uid] = functools.partial(self._delete, ahead)

    def _done(self, uid: str, task: asyncio.Task[None]) -> None:
        del self._under_way[uid]
        self.wake()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._pauses.failed(uid)
            logger.error("pre-run request raised", exc_info=error, extra={"job_uid": uid})

    async def _one(self, uid: str, request: Request) -> None:
        try:
            await request()
        except errors.RequestFailed as error:
            self._troubles[uid] = str(error)
            self._pauses.failed(uid)
            logger.warning("pre-run request failed", extra={"job_uid": uid, "error": str(error)})
        else:
            self._troubles.pop(uid, None)
            self._pauses.succeeded(uid)

    async def _make(self, job: CachedJob, plan: PreRunPlan) -> None:
        namespace = job.raw["metadata"]["namespace"]
        path = paths.one(names.TRAINING_JOBS, plan.name, namespace=namespace)
        try:
            made = await self.api.create(paths.kind(names.TRAINING_JOBS, namespace), plan.manifest)
        except (errors.AlreadyExistsError, errors.OutcomeUnknown):
            made = await self.api.get(path)
        except FOR_GOOD as error:
            self._refuse(job, plan, error.message)
            return
        metadata = made["metadata"]
        if names.LABEL_PRE_RUN_OF not in metadata.get("labels", {}):
            self._refuse(job, plan, "another job has its name")
            return
        # Only the operator creates these. A pre-run of a deleted job of this name still exists.
        if "deletionTimestamp" in metadata or not _is_owned(made, job.uid):
            raise errors.Unreachable("the one before it is not gone yet")
        self.jobs.absorb(made)
        if why := self.jobs.why_unreadable(made["metadata"]["uid"]):
            self._refuse(job, plan, why)

    def _refuse(self, job: CachedJob, plan: PreRunPlan, why: str) -> None:
        self._refusals[job.uid] = _given_up(plan, f"was refused: {why}")

    async def _delete(self, ahead: CachedJob) -> None:
        metadata = ahead.raw["metadata"]
        path = paths.one(names.TRAINING_JOBS, metadata["name"], namespace=metadata["namespace"])
        try:
            await self.api.delete(path, bodies.deletion(ahead.uid))
        except (errors.ConflictError, errors.NotFoundError):
            self.jobs.discard(ahead.uid)


def _given_up(plan: PreRunPlan, why: str) -> End:
    return End(plan.of, f"the pre-run {plan.name} {why}")


def _is_ahead(cached: CachedJob, jobs: Mapping[str, CachedJob]) -> bool:
    """Whether this is the pre-run of one of these jobs (by UID), and not another job that claims
    it."""
    job = jobs.get(cached.ahead_of)
    if job is None:
        return False
    mine, its = cached.raw["metadata"], job.raw["metadata"]
    place = its["namespace"], names.pre_run_name(its["name"])
    return (mine["namespace"], mine["name"]) == place


def _is_owned(made: Mapping[str, Any], job_uid: str) -> bool:
    owners = made["metadata"].get("ownerReferences", ())
    return any(owner["uid"] == job_uid and owner.get("controller") for owner in owners)


def _is_recorded(job: CachedJob) -> bool:
    return job.workload is not None and job.workload.profile is not None


def _digest(ahead: CachedJob) -> str:
    annotations = ahead.raw["metadata"].get("annotations", {})
    return str(annotations.get(names.ANNOTATION_PRE_RUN, ""))


def _end(job: CachedJob) -> End | None:
    """The end of the last pre-run without a profile, from the job's status."""
    held = (job.raw.get("status") or {}).get("preRun")
    return End(held["of"], held["message"]) if held else None


def _progress(ahead: CachedJob | None) -> tuple[str, str]:
    """The pre-run's phase, and its step or the message of its status."""
    if ahead is None:
        return "", ""
    status = ahead.raw.get("status") or {}
    if ahead.record.phase is not Phase.RUNNING:
        return ahead.record.phase.value, str(status.get("message", ""))
    step = status.get("progress", {}).get("step")
    return ahead.record.phase.value, "" if step is None else f"step {step}"


def _unfit(job: CachedJob, recorded: str) -> str:
    """Why the recorded profile does not fit the job; empty if it does."""
    workload = job.job.spec.workload
    assert workload is not None, job.uid
    try:
        workloads.workload(workload.model_copy(update={"profile": recorded}))
    except ValueError as error:
        return f"recorded a profile that does not fit the job: {error}"
    return ""


def _why_nothing(ahead: CachedJob) -> str:
    status = ahead.raw.get("status") or {}
    match ahead.record.phase:
        case Phase.SUCCEEDED:
            steps = ahead.job.spec.profiling.steps
            return f"ended before all of its ranks had recorded {steps} steps"
        case Phase.FAILED:
            return f"failed: {status.get('message', '')}"
        case _ if ahead.job.spec.suspend:
            return "was suspended"
        case phase:
            return (
                f"has not recorded within {RECORDS_S / 60:.0f} min, and is {phase}: only scripts "
                "that report their steps can be recorded; what else keeps torch from it is in its "
                "logs"
            )
