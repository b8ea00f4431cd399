"""Publish each job's status after a scheduling cycle, post its events, delete what has expired.

A status is written when it differs from the one held, under that one's resourceVersion: a write
that conflicts is made again by the next cycle from the newer object. A refresh, which changes only
numbers (progress, and the reason for a wait), is written at most every ``REFRESH_S``, less often
with many jobs or while gangs are being bound. An unchanged job causes no write, and its status is
not rendered again. A cycle starts the writes and does not wait for them: a job whose write is in
flight is handled again after the write ends. A failure of one job is logged; it affects no other
job and no cycle.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import KW_ONLY, dataclass
from random import Random
from typing import Any

from railwright_api import names, routes
from railwright_conversion import failure_policies, times
from railwright_kube import bodies, errors, paths
from railwright_kube.backoff import Backoff, Pauses
from railwright_kube.client import Api
from railwright_kube.in_flight import RequestsInFlight
from railwright_kube.lanes import Lane
from railwright_kube.yielding import TimeSlice
from railwright_operator.faults import RAISED_S, STATUS, JobFaults
from railwright_operator.heartbeats.sessions import Sessions
from railwright_operator.invariants import DoubleBookings
from railwright_operator.report import job_events, kept_status, status
from railwright_operator.report.attempt_metrics import AttemptMetrics
from railwright_operator.report.commits import Commits
from railwright_operator.report.events import Events, JobEvent
from railwright_operator.report.job_metrics import JobMetrics
from railwright_operator.report.profile_writes import ProfileWrites, StoreProfile
from railwright_operator.report.status import StatusInput
from railwright_operator.state_builder import StateBuilder
from railwright_operator.watch.jobs import CachedJob, Jobs, UnreadableJob
from railwright_scheduler.attempt.assessment import Ongoing
from railwright_scheduler.attempt.gang import BindPod, CreatePod, WritePlacement
from railwright_scheduler.attempt.phases import FINAL, Phase
from railwright_scheduler.attempt.record import JobRecord, ending
from railwright_scheduler.plan import Plan

logger = logging.getLogger(__name__)

StatusWrite = Coroutine[Any, Any, object]

REFRESH_S = 3.0
REFRESHES_PER_S_MAX = 10
"""With many jobs each is refreshed less often: each start or end changes the numbers of all waiting
jobs."""

REFRESH_BURST_S = 2.0
"""A cycle may write as many refreshes as this time allows, or the time since the cycle before if
that is longer; otherwise the last jobs would never be refreshed."""

REFRESH_WHILE_BINDING_S = 15.0
"""While pods of a gang are created and bound: its nodes are idle until then."""

STARTS = (WritePlacement, CreatePod, BindPod)
"""The actions that a gang waits for before it runs."""

STARTS_IN = frozenset({Phase.PROFILING, Phase.STARTING})
"""The phases in which the status has the steps of a start."""

BULK_PODS = 128
AFTER_BULK_S = 10.0
"""A cycle that binds this many pods starts a bulk. For this long after it refreshes stay slow and
events are postponed, as kubelets report these pods to a busy API server."""

WRITES_MAX = 16
"""Concurrent status writes. Starting gangs come first."""

WAITING_WRITES_MAX = 8
"""Concurrent writes for waiting jobs whose record is unchanged, so that no changed record waits
behind them: a thousand large waiting jobs keep an API server busy for minutes."""

PAUSE_S = Backoff(0.5, 8.0)

EXPIRY_BACKOFF_S = Backoff(1.0, 300.0)


@dataclass(eq=False, repr=False)
class Reporter:
    """Writes statuses and events."""

    api: Api
    _: KW_ONLY
    jobs: Jobs
    sessions: Sessions
    commits: Commits
    events: Events
    faults: JobFaults
    attempt_metrics: AttemptMetrics
    job_metrics: JobMetrics
    state_builder: StateBuilder
    store_profile: StoreProfile
    wake: Callable[[], None]
    clock: Callable[[], float]
    wall_clock: Callable[[], float]
    rng: Random

    def __post_init__(self) -> None:
        self._refresh_s = REFRESH_S
        self._next_refresh_s = self._reported_s = self.clock()
        self._burst_s = REFRESH_BURST_S
        self._bulk_until_s = self.clock()
        self._written_s: dict[str, float] = {}
        self._expiries: Pauses[str] = Pauses(EXPIRY_BACKOFF_S, clock=self.clock, rng=self.rng)
        self._raised: Pauses[str] = Pauses(RAISED_S, clock=self.clock, rng=self.rng)
        """The log lines of jobs whose status cannot be rendered."""
        self._writes: RequestsInFlight[str] = RequestsInFlight(
            backoff=PAUSE_S,
            clock=self.clock,
            rng=self.rng,
            on_end=self._ended,
        )
        self._profiles = ProfileWrites(self.store_profile, clock=self.clock, rng=self.rng)
        self._quiet: dict[str, StatusInput] = {}
        self._wakes_once_written: set[str] = set()
        self._double_bookings = DoubleBookings()
        self._record_lane = Lane(WRITES_MAX)
        self._waiting_lane = Lane(WAITING_WRITES_MAX)

    async def report(self, plan: Plan) -> None:
        """Start writing every status that changed. Raises nothing."""
        now_s = int(self.wall_clock())
        self._double_bookings.update(plan.double_bookings)
        unread = {found.uid: found for found in self.jobs.unreadable()}
        self._forget_all_but(plan.records.keys() | unread.keys() | plan.unobserved)
        self.commits.refuse_all_but(plan.records.keys() | plan.unobserved)
        unfinished = sum(record.phase not in FINAL for record in plan.records.values())
        least_s = REFRESH_WHILE_BINDING_S if self._is_binding(plan) else REFRESH_S
        self._refresh_s = max(least_s, unfinished / REFRESHES_PER_S_MAX)
        self._burst_s = max(REFRESH_BURST_S, self.clock() - self._reported_s)
        self._reported_s = self.clock()
        self.events.add_late(self._reported_s)
        time_slice = TimeSlice(self.clock)
        for uid in [*plan.records, *(unread.keys() - plan.records.keys())]:
            if uid in self._writes:
                self._wakes_once_written.add(uid)
                continue
            if not self._writes.is_due(uid):
                continue
            try:
                if uid in plan.records:
                    write = self._job(uid, plan.records[uid], plan, now_s)
                else:
                    write = self._unreadable(unread[uid])
            except Exception:
                self.faults.raised.labels(STATUS).inc()
                if self._raised.over(uid):
                    self._raised.failed(uid)
                    logger.exception("status update raised", extra={"job_uid": uid})
                continue
            self._raised.succeeded(uid)
            if write is not None:
                self._start(uid, write, plan)
            if time_slice.is_over:
                await time_slice.yield_to_others()

    def _is_binding(self, plan: Plan) -> bool:
        binding = {a.entry.key: len(a.entry.nodes) for a in plan.actions if isinstance(a, STARTS)}
        if sum(binding.values()) >= BULK_PODS:
            self._bulk_until_s = self.clock() + AFTER_BULK_S
            self.events.postpone(self._bulk_until_s)
        return bool(binding) or self.clock() < self._bulk_until_s

    def _forget_all_but(self, uids: Collection[str]) -> None:
        self._written_s = {uid: at for uid, at in self._written_s.items() if uid in uids}
        self._expiries.forget_unless(uids.__contains__)
        self._raised.forget_unless(uids.__contains__)
        self._writes.forget_unless(uids.__contains__)
        self._profiles.forget_unless(uids.__contains__)
        self._quiet = {uid: given for uid, given in self._quiet.items() if uid in uids}
        self.job_metrics.forget_all_but(uids)

    def _start(self, uid: str, write: StatusWrite, plan: Plan) -> None:
        record = plan.records.get(uid)
        waits = record is None or record.phase in (Phase.QUEUED, Phase.SUSPENDED)
        cached = self.state_builder.job(uid)
        if cached is not None and record is not None and cached.record != record:
            self._wakes_once_written.add(uid)  # The next cycle can use this record.
            waits = False
        lane = self._waiting_lane if waits else self._record_lane
        self._writes.start(uid, _in_lane(lane, write))

    def _ended(self, uid: str, error: BaseException | None) -> None:
        if uid in self._wakes_once_written:
            self._wakes_once_written.remove(uid)
            self.wake()
        if error is None:
            return
        if isinstance(error, errors.RequestFailed):
            logger.warning("status update failed", extra={"job_uid": uid, "error": str(error)})
        else:
            logger.error("status update raised", exc_info=error, extra={"job_uid": uid})

    def _job(self, uid: str, record: JobRecord, plan: Plan, now_s: int) -> StatusWrite | None:
        """The write that this job needs; None if it needs none."""
        cached = self.state_builder.job(uid)
        assert cached is not None, uid
        if cached.record.phase in FINAL and record.phase in FINAL:
            self.commits.refuse(uid)
            return (
                self._expire(cached)
                if self._is_expired(cached, now_s)
                else self._generation_write(cached)
            )
        if self.jobs.get(uid) is not cached:
            self.wake()  # The job changed during this cycle: the next one has its newest version.
            return None
        given = self._status_input(cached, record, plan, now_s)
        placement = self.jobs.placement(cached.raw, record.attempt) if record.live else None
        metadata, submitted_s = cached.raw["metadata"], cached.submitted_s
        self.job_metrics.record(metadata, given, placement, submitted_s=submitted_s)
        self._profiles.start(cached, record, given.session)
        if self._quiet.get(uid) == given:
            self.commits.recorded(uid, cached.record)
            return None
        after = status.render(given)
        patch = bodies.merge_patch(given.before, after)
        if not patch:
            self._quiet[uid] = given
        is_early = status.is_refresh(given.before, patch) and not self._is_due_again(uid)
        if not patch or is_early:
            self.commits.recorded(uid, cached.record)
            return None
        return self._record(cached, given, after, patch)

    def _generation_write(self, cached: CachedJob) -> StatusWrite | None:
        """The write of the new generation of a finished job whose spec was changed."""
        before, generation = cached.raw.get("status") or {}, cached.raw["metadata"]["generation"]
        after = kept_status.observed(before, generation=generation)
        patch = bodies.merge_patch(before, after)
        return self._write(cached.raw, patch, after) if patch else None

    async def _record(
        self,
        cached: CachedJob,
        given: StatusInput,
        after: status.Status,
        patch: status.Status,
    ) -> None:
        if not await self._write(cached.raw, patch, after):
            return
        self._written_s[cached.uid] = self.clock()
        # A webhook may have changed what was written.
        stored = self.jobs.get(cached.uid)
        self.commits.recorded(cached.uid, given.record if stored is None else stored.record)
        took = self.attempt_metrics.record(
            cached.record,
            given,
            submitted_s=cached.submitted_s,
            received_s=self.job_metrics.reception_clock(),
        )
        cause = ending(cached.record, given.record)
        self.job_metrics.record_restart(cached.uid, cause, took)
        if given.record.phase in FINAL:
            self.events.refill(cached.uid)
        for event in job_events.changes(
            cached.raw["metadata"],
            records_changed=(cached.record, given.record),
            status_changed=(given.before, after),
            training_group=given.training_group,
        ):
            self.events.add(event)

    def _unreadable(self, found: UnreadableJob) -> StatusWrite | None:
        """Publish once why the job cannot be read."""
        before = found.raw.get("status") or {}
        generation = found.raw["metadata"]["generation"]
        after = kept_status.unreadable(before, generation=generation, why=found.why)
        patch = bodies.merge_patch(before, after)
        written_s = self._written_s.get(found.uid)
        if not patch or (written_s is not None and self.clock() - written_s < REFRESH_S):
            return None
        self._written_s[found.uid] = self.clock()
        return self._write_unreadable(found, patch, after)

    async def _write_unreadable(
        self, found: UnreadableJob, patch: status.Status, after: status.Status
    ) -> None:
        if await self._write(found.raw, patch, after):
            job = found.raw["metadata"]
            self.events.add(JobEvent(job, kept_status.UNREADABLE, found.why, warning=True))

    def _status_input(
        self, cached: CachedJob, record: JobRecord, plan: Plan, now_s: int
    ) -> StatusInput:
        view = self.sessions.attempt(cached.uid, record.attempt)
        layout = cached.layout_of(record)
        record = self.commits.fold(cached.uid, record, view, layout)
        verdict = plan.assessments.get(cached.uid)
        policy = failure_policies.convert(cached.job.spec.failure_policy)
        return StatusInput(
            failures_used=policy.usage(record.failure_times_s, now_s),
            record=record,
            before=cached.raw.get("status") or {},
            generation=cached.raw["metadata"]["generation"],
            now=times.render(now_s),
            racks=self.state_builder.machines.racks(record.nodes),
            unprofiled=self.state_builder.unprofiled(cached, record.nodes),
            wait=plan.waits.get(cached.uid),
            assessment=verdict if isinstance(verdict, Ongoing) else None,
            session=view,
            training_group=layout.training.group,
            ranks=self.state_builder.ranks(cached.uid) if record.phase in STARTS_IN else (),
            unreadable=self.jobs.why_unreadable(cached.uid),
            set_aside=self.faults.mark(cached.uid),
            double_booking=self._double_bookings.message(cached.uid),
        )

    def _is_due_again(self, uid: str) -> bool:
        """Whether a refresh is due. A new leader spreads the first refreshes over time."""
        now_s = self.clock()
        written_s = self._written_s.setdefault(uid, now_s - self._refresh_s * self.rng.random())
        if now_s - written_s < self._refresh_s or now_s < self._next_refresh_s:
            return False
        earliest_s = now_s - self._burst_s
        self._next_refresh_s = max(self._next_refresh_s, earliest_s) + 1 / REFRESHES_PER_S_MAX
        return True

    async def _write(
        self, raw: Mapping[str, Any], patch: status.Status, after: status.Status
    ) -> bool:
        """Write a patch; return whether the status is ``after`` now. Raises RequestFailed."""
        metadata = raw["metadata"]
        body = bodies.status_patch(patch, resource_version=metadata["resourceVersion"])
        try:
            self.jobs.absorb(await self.api.patch(paths.status(_path(raw)), body))
        except (errors.ConflictError, errors.NotFoundError, errors.OutcomeUnknown) as error:
            found = await self._read_again(raw, error)
            # The write may have been applied before its reply was lost.
            if found is None:
                return False
            is_there = not bodies.merge_patch(found.get("status") or {}, after)
            if isinstance(error, errors.OutcomeUnknown) and not is_there:
                raise  # So that it is tried again after a pause.
            return is_there
        return True

    async def _read_again(
        self, raw: Mapping[str, Any], error: errors.RequestFailed
    ) -> Mapping[str, Any] | None:
        """Read the newest version of a job after a conflict; None if the job is gone."""
        uid = raw["metadata"]["uid"]
        self._wakes_once_written.add(uid)
        logger.info("status update failed", extra={"job_uid": uid, "error": str(error)})
        try:
            found: Mapping[str, Any] = await self.api.get(_path(raw))
        except errors.NotFoundError:
            self.jobs.discard(uid)
            return None
        if found["metadata"]["uid"] != uid:
            self.jobs.discard(uid)
            return None
        self.jobs.absorb(found)
        return found

    def _is_expired(self, cached: CachedJob, now_s: int) -> bool:
        """Whether a finished job's TTL has expired, and its deletion may be requested now."""
        ttl_s = cached.job.spec.ttl_seconds_after_finished
        finished = (cached.raw.get("status") or {}).get("finishedAt")
        if ttl_s is None or finished is None:
            return False
        if now_s < times.parse(finished) + ttl_s:
            return False
        return self._expiries.over(cached.uid)

    async def _expire(self, cached: CachedJob) -> None:
        """Delete the job, and with it its pods and placements.

        The deletion counts as failed until the job is gone, and is repeated with back-off: a policy
        or a finalizer may prevent it forever.
        """
        self._expiries.failed(cached.uid)
        try:
            await self.api.delete(_path(cached.raw), bodies.deletion(cached.uid))
        except (errors.ConflictError, errors.NotFoundError):
            self.jobs.discard(cached.uid)


async def _in_lane(lane: Lane, write: StatusWrite) -> None:
    async with lane.place():
        await write


def _path(raw: Mapping[str, Any]) -> str:
    metadata = raw["metadata"]
    return routes.one(names.TRAINING_JOBS, metadata["name"], namespace=metadata["namespace"])
