"""Bring each job's status to what a turn found, tell what changed, and remove what is over.

A status is written when it differs from the one held, under that one's resourceVersion: a write
that loses the race is simply made again by the next turn from the newer object. What is only told
again with newer numbers, progress and why a job waits, is written at most every ``RETOLD_S``, and
less often where there are many jobs, or while gangs are being bound; nothing is written about a job
that stands still, nor is its status made again to find that out. A turn starts the writes and does
not wait for them: a job whose write is under way is looked at again once it ended. What goes wrong
with one job is logged, and neither ends the turn nor keeps the others from being told.
"""

from __future__ import annotations

import asyncio
import datetime
import functools
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping
from random import Random
from typing import Any

from railwright_api import names
from railwright_operator.backoff import Pauses
from railwright_operator.faults import JobFaults
from railwright_operator.heartbeats.sessions import Sessions
from railwright_operator.heartbeats.views import SessionView
from railwright_operator.kube import bodies, errors, paths
from railwright_operator.kube.client import Api
from railwright_operator.kube.lanes import Lane
from railwright_operator.observe import Observer
from railwright_operator.report import status, story
from railwright_operator.report.commits import Commits
from railwright_operator.report.cycle_metrics import CycleMetrics
from railwright_operator.report.double_bookings import DoubleBookings
from railwright_operator.report.events import Events, Story, Subject
from railwright_operator.watch.jobs import Jobs, Known, Unreadable
from railwright_operator.yielding import TimeSlice
from railwright_scheduler.attempt import record as records
from railwright_scheduler.attempt.assessment import Ongoing
from railwright_scheduler.attempt.gang import BindPod, CreatePod, WritePlacement
from railwright_scheduler.attempt.phases import FINAL, Phase
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.turn import Turn

logger = logging.getLogger(__name__)

Telling = Coroutine[Any, Any, None]

RETOLD_S = 3.0
RETOLD_PER_S_MAX = 10
"""Of many jobs each is told less often: a thousand that wait would be told again all the time, as
everything that starts or ends changes the numbers of what they wait for.
"""

RETOLD_BURST_S = 2.0
"""A cycle may write as many of these as so many seconds allow, or the time since the one before
if that took longer: else the jobs that come last would never be told again."""

RETOLD_WHILE_BINDING_S = 15.0
"""While pods of a gang are created and bound: each of its nodes stands idle until then."""

STARTS = (WritePlacement, CreatePod, BindPod)
"""The actions that a gang waits for before it runs."""

BULK_PODS = 128
AFTER_BULK_S = 5.0
"""A cycle that binds gangs of so many pods together starts a bulk. The pace stays and events are
postponed for so much longer: kubelets report these pods to an API server without time to spare."""

WRITES_MAX = 16
"""So many statuses are written at a time: telling must not crowd out doing."""

TOLD_WRITES_MAX = 8
"""So many of jobs that wait, where no record changes. A record never waits behind them: a thousand
large jobs that wait keep an API server busy for minutes."""

PAUSE_BASE_S = 0.5
PAUSE_CAP_S = 8.0

EXPIRY_BACKOFF_BASE_S = 1.0
EXPIRY_BACKOFF_CAP_S = 300.0


class Reporter:
    """Writes statuses and events; remembers when each job was written last."""

    def __init__(
        self,
        api: Api,
        *,
        jobs: Jobs,
        sessions: Sessions,
        commits: Commits,
        events: Events,
        faults: JobFaults,
        metrics: CycleMetrics,
        observer: Observer,
        wake: Callable[[], None],
        clock: Callable[[], float],
        rng: Random,
    ) -> None:
        self._api = api
        self._jobs = jobs
        self._sessions = sessions
        self._commits = commits
        self._events = events
        self._faults = faults
        self._metrics = metrics
        self._observer = observer
        self._wake = wake
        self._clock = clock
        self._rng = rng
        self._retold_s = RETOLD_S
        self._next_retold_s = self._reported_s = clock()
        self._burst_s = RETOLD_BURST_S
        self._bulk_until_s = clock()
        self._written_s: dict[str, float] = {}
        self._expiries: Pauses[str] = Pauses(
            base_s=EXPIRY_BACKOFF_BASE_S, cap_s=EXPIRY_BACKOFF_CAP_S, clock=clock, rng=rng
        )
        self._pauses: Pauses[str] = Pauses(
            base_s=PAUSE_BASE_S, cap_s=PAUSE_CAP_S, clock=clock, rng=rng
        )
        self._quiet: dict[str, status.Told] = {}
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._wakes_once_written: set[str] = set()
        self._double_bookings = DoubleBookings()
        self._record_lane = Lane(WRITES_MAX)
        self._told_lane = Lane(TOLD_WRITES_MAX)

    def __repr__(self) -> str:
        return f"<Reporter jobs={len(self._written_s)}>"

    async def report(self, plan: Turn) -> None:
        """Start writing every status that changed. Raises nothing."""
        now = datetime.datetime.now(datetime.UTC)
        self._double_bookings.update(plan.double_bookings)
        unread = {found.uid: found for found in self._jobs.unreadable()}
        self._forget_all_but(plan.records.keys() | unread.keys() | plan.unobserved)
        self._commits.refuse_all_but(plan.records.keys() | plan.unobserved)
        told = sum(record.phase not in FINAL for record in plan.records.values())
        least_s = RETOLD_WHILE_BINDING_S if self._is_binding(plan) else RETOLD_S
        self._retold_s = max(least_s, told / RETOLD_PER_S_MAX)
        self._burst_s = max(RETOLD_BURST_S, self._clock() - self._reported_s)
        self._reported_s = self._clock()
        shared = TimeSlice(self._clock)
        for uid in [*plan.records, *(unread.keys() - plan.records.keys())]:
            if uid in self._under_way:
                self._wakes_once_written.add(uid)
                continue
            if not self._pauses.over(uid):
                continue
            try:
                if uid in plan.records:
                    telling = self._job(uid, plan.records[uid], plan, now)
                else:
                    telling = self._unreadable(unread[uid])
            except Exception:
                logger.exception("telling a job broke", extra={"job_uid": uid})
                continue
            if telling is not None:
                self._start(uid, telling, plan)
            if shared.over:
                await shared.others()

    def _is_binding(self, plan: Turn) -> bool:
        binding = {a.entry.key: len(a.entry.nodes) for a in plan.actions if isinstance(a, STARTS)}
        if sum(binding.values()) >= BULK_PODS:
            self._bulk_until_s = self._clock() + AFTER_BULK_S
            self._events.postpone(self._bulk_until_s)
        return bool(binding) or self._clock() < self._bulk_until_s

    def _forget_all_but(self, uids: Collection[str]) -> None:
        self._written_s = {uid: at for uid, at in self._written_s.items() if uid in uids}
        self._expiries.forget_unless(uids.__contains__)
        self._pauses.forget_unless(uids.__contains__)
        self._quiet = {uid: told for uid, told in self._quiet.items() if uid in uids}

    def _start(self, uid: str, telling: Telling, plan: Turn) -> None:
        record = plan.records.get(uid)
        waits = record is None or record.phase in (Phase.QUEUED, Phase.SUSPENDED)
        known = self._observer.known(uid)
        if known is not None and record is not None and known.record != record:
            self._wakes_once_written.add(uid)  # The next cycle may go on from this record.
            waits = False
        lane = self._told_lane if waits else self._record_lane
        task = asyncio.create_task(self._one(telling, lane))
        self._under_way[uid] = task
        task.add_done_callback(functools.partial(self._done, uid))

    async def _one(self, telling: Telling, lane: Lane) -> None:
        async with lane.place():
            await telling

    def _done(self, uid: str, task: asyncio.Task[None]) -> None:
        del self._under_way[uid]
        if uid in self._wakes_once_written:
            self._wakes_once_written.remove(uid)
            self._wake()
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self._pauses.succeeded(uid)
            return
        self._pauses.failed(uid)
        if isinstance(error, errors.RequestFailed):
            logger.warning("job not told", extra={"job_uid": uid, "error": str(error)})
        else:
            logger.error("telling a job broke", exc_info=error, extra={"job_uid": uid})

    def _job(
        self, uid: str, record: JobRecord, plan: Turn, now: datetime.datetime
    ) -> Telling | None:
        """What is to be written about this job, if anything is."""
        known = self._observer.known(uid)
        assert known is not None, uid
        if known.record.phase in FINAL and record.phase in FINAL:
            self._commits.refuse(uid)
            return self._expire(known) if self._is_expired(known, now) else None
        if self._jobs.get(uid) is not known:
            self._wake()  # It was written since the turn began: the next one has the newer.
            return None
        view = self._sessions.attempt(uid, record.attempt)
        record = self._commits.fold(uid, record, view)
        told = self._told(known, record, view, plan, now)
        if self._quiet.get(uid) == told:
            self._commits.recorded(uid, known.record)
            return None
        after = status.render(told)
        patch = bodies.merge_patch(told.before, after)
        if not patch:
            self._quiet[uid] = told
        if not patch or (status.is_retold(told.before, patch) and not self._is_due_again(uid)):
            self._commits.recorded(uid, known.record)
            return None
        return self._record(known, record, told.before, after, patch)

    async def _record(
        self,
        known: Known,
        record: JobRecord,
        before: Mapping[str, Any],
        after: status.Status,
        patch: status.Status,
    ) -> None:
        if await self._write(known.raw, patch):
            self._written_s[known.uid] = self._clock()
            self._commits.recorded(known.uid, record)
            self._tell(known, record, before, after)

    def _unreadable(self, found: Unreadable) -> Telling | None:
        """Say on the job why it is left alone, once."""
        before = found.raw.get("status") or {}
        generation = found.raw["metadata"]["generation"]
        after = status.unreadable(before, generation=generation, why=found.why)
        patch = bodies.merge_patch(before, after)
        told_s = self._written_s.get(found.uid)
        if not patch or (told_s is not None and self._clock() - told_s < RETOLD_S):
            return None
        self._written_s[found.uid] = self._clock()
        return self._say_unreadable(found, patch)

    async def _say_unreadable(self, found: Unreadable, patch: status.Status) -> None:
        if await self._write(found.raw, patch):
            who = _subject(found.raw)
            self._events.tell(Story(who, status.UNREADABLE, found.why, warning=True))

    def _told(
        self,
        known: Known,
        record: JobRecord,
        view: SessionView | None,
        plan: Turn,
        now: datetime.datetime,
    ) -> status.Told:
        verdict = plan.assessments.get(known.uid)
        return status.Told(
            record=record,
            before=known.raw.get("status") or {},
            generation=known.raw["metadata"]["generation"],
            now=now.isoformat(timespec="seconds").replace("+00:00", "Z"),
            num_nodes=known.job.spec.num_nodes,
            racks=self._observer.racks(record.nodes),
            unprofiled=self._observer.unprofiled(known, record.nodes),
            wait=plan.waits.get(known.uid),
            assessment=verdict if isinstance(verdict, Ongoing) else None,
            session=view,
            ranks=self._observer.ranks(known.uid) if record.phase is Phase.STARTING else (),
            unreadable=self._jobs.why_unreadable(known.uid),
            pre_run=self._observer.pre_run(known.uid),
            set_aside=self._faults.mark(known.uid),
            double_booking=self._double_bookings.message(known.uid),
        )

    def _is_due_again(self, uid: str) -> bool:
        """Whether it is time for newer numbers. A leader that has just begun and finds a thousand
        jobs told by another one comes to each of them at some time, and not to all at once."""
        now_s = self._clock()
        written_s = self._written_s.setdefault(uid, now_s - self._retold_s * self._rng.random())
        if now_s - written_s < self._retold_s or now_s < self._next_retold_s:
            return False
        earliest_s = now_s - self._burst_s
        self._next_retold_s = max(self._next_retold_s, earliest_s) + 1 / RETOLD_PER_S_MAX
        return True

    async def _write(self, raw: Mapping[str, Any], patch: Mapping[str, Any]) -> bool:
        """Whether it is written now. Raises RequestFailed, too, when it is not."""
        metadata = raw["metadata"]
        body = bodies.status_patch(patch, resource_version=metadata["resourceVersion"])
        try:
            self._jobs.absorb(await self._api.patch(paths.status(_path(raw)), body))
        except (errors.ConflictError, errors.NotFoundError, errors.OutcomeUnknown) as error:
            await self._look_again(raw, error)
            return False
        return True

    async def _look_again(self, raw: Mapping[str, Any], error: errors.RequestFailed) -> None:
        """The job changed under us: read its newest version, before the watch brings it."""
        uid = raw["metadata"]["uid"]
        self._wakes_once_written.add(uid)
        logger.info("status not written", extra={"job_uid": uid, "error": str(error)})
        try:
            found = await self._api.get(_path(raw))
        except errors.NotFoundError:
            self._jobs.discard(uid)
            return
        if found["metadata"]["uid"] == uid:
            self._jobs.absorb(found)
        else:
            self._jobs.discard(uid)

    def _tell(
        self,
        known: Known,
        record: JobRecord,
        before: Mapping[str, Any],
        after: status.Status,
    ) -> None:
        cause = records.ending(known.record, record)
        if cause is not None:
            self._metrics.ended(cause.code)
        who = _subject(known.raw)
        for told in story.tell(who, before=known.record, after=record, status=after):
            self._events.tell(told)
        for told in story.tell_pre_run(who, before=before, after=after):
            self._events.tell(told)
        unfit = status.skipped(after)
        for told in story.tell_skipped(who, before=status.skipped(before), after=unfit):
            self._events.tell(told)

    def _is_expired(self, known: Known, now: datetime.datetime) -> bool:
        """Whether a finished job's time is over, and it is time to ask for its deletion (again)."""
        ttl_s = known.job.spec.ttl_seconds_after_finished
        finished = (known.raw.get("status") or {}).get("finishedAt")
        if ttl_s is None or finished is None:
            return False
        if now < datetime.datetime.fromisoformat(finished) + datetime.timedelta(seconds=ttl_s):
            return False
        return self._expiries.over(known.uid)

    async def _expire(self, known: Known) -> None:
        """Delete the job; its pods and placements go with it.

        It counts as failed until the job is seen to be gone: what refuses that, or a finalizer
        that holds it, may do so for good, so it is asked more and more rarely.
        """
        self._expiries.failed(known.uid)
        try:
            await self._api.delete(_path(known.raw), bodies.deletion(known.uid))
        except (errors.ConflictError, errors.NotFoundError):
            self._jobs.discard(known.uid)


def _path(raw: Mapping[str, Any]) -> str:
    metadata = raw["metadata"]
    return paths.one(names.TRAINING_JOBS, metadata["name"], namespace=metadata["namespace"])


def _subject(raw: Mapping[str, Any]) -> Subject:
    metadata = raw["metadata"]
    return Subject(metadata["uid"], metadata["namespace"], metadata["name"])
