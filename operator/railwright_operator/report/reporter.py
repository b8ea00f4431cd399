"""Bring each job's status to what a turn found, tell what changed, and remove what is over.

A status is written when it differs from the one held, under that one's resourceVersion: a write
that loses the race is simply made again by the next turn from the newer object. What is only told
again with newer numbers, progress and why a job waits, is written at most every ``RETOLD_S``;
nothing is written about a job that stands still. What goes wrong with one job is logged, and
neither ends the turn nor keeps the others from being told.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
from collections.abc import Callable, Collection, Mapping
from random import Random
from typing import Any

from railwright_api import names
from railwright_operator import backoff
from railwright_operator.heartbeats.sessions import Sessions
from railwright_operator.kube import bodies, errors, paths
from railwright_operator.kube.client import Api
from railwright_operator.observe import Observer
from railwright_operator.report import status, story
from railwright_operator.report.commits import Commits
from railwright_operator.report.cycle_metrics import CycleMetrics
from railwright_operator.report.events import Events, Story, Subject
from railwright_operator.watch.jobs import Jobs, Known, Unreadable
from railwright_scheduler.attempt import record as records
from railwright_scheduler.attempt.assessment import Ongoing
from railwright_scheduler.attempt.phases import FINAL
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.turn import Turn

logger = logging.getLogger(__name__)

RETOLD_S = 3.0

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
        metrics: CycleMetrics,
        observer: Observer,
        clock: Callable[[], float],
        rng: Random,
    ) -> None:
        self._api = api
        self._jobs = jobs
        self._sessions = sessions
        self._commits = commits
        self._events = events
        self._metrics = metrics
        self._observer = observer
        self._clock = clock
        self._rng = rng
        self._written_s: dict[str, float] = {}
        self._expiries: dict[str, tuple[int, float]] = {}

    def __repr__(self) -> str:
        return f"<Reporter jobs={len(self._written_s)}>"

    async def report(self, plan: Turn) -> None:
        """Write every status that changed; returns when all have answers. Raises nothing."""
        now = datetime.datetime.now(datetime.UTC)
        unread = {found.uid: found for found in self._jobs.unreadable()}
        self._forget_all_but(plan.records.keys() | unread.keys())
        self._commits.refuse_all_but(plan.records)
        telling = {uid: self._job(uid, record, plan, now) for uid, record in plan.records.items()}
        telling |= {
            uid: self._unreadable(found) for uid, found in unread.items() if uid not in telling
        }
        results = await asyncio.gather(*telling.values(), return_exceptions=True)
        for uid, result in zip(telling, results, strict=True):
            if isinstance(result, errors.RequestFailed):
                logger.warning("job not told", extra={"job_uid": uid, "error": str(result)})
            elif result is not None:
                logger.error("telling a job broke", exc_info=result, extra={"job_uid": uid})

    def _forget_all_but(self, uids: Collection[str]) -> None:
        self._written_s = {uid: at for uid, at in self._written_s.items() if uid in uids}
        self._expiries = {uid: held for uid, held in self._expiries.items() if uid in uids}

    async def _job(self, uid: str, record: JobRecord, plan: Turn, now: datetime.datetime) -> None:
        known = self._observer.known(uid)
        assert known is not None, uid
        if known.record.phase in FINAL and record.phase in FINAL:
            self._commits.refuse(uid)
            await self._expire(known, now)
            return
        record = self._commits.fold(uid, record, self._sessions.attempt(uid, record.attempt))
        told = self._told(known, record, plan, now)
        after = status.render(told)
        patch = status.difference(told.before, after)
        if not patch or (status.is_retold(told.before, patch) and not self._is_due(uid)):
            self._commits.recorded(uid, known.record)
            return
        if await self._write(known.raw, patch):
            self._written_s[uid] = self._clock()
            self._commits.recorded(uid, record)
            self._tell(known, record, told.before, after)

    async def _unreadable(self, found: Unreadable) -> None:
        """Say on the job why it is left alone, once."""
        before = found.raw.get("status") or {}
        generation = found.raw["metadata"]["generation"]
        after = status.unreadable(before, generation=generation, why=found.why)
        patch = status.difference(before, after)
        if not patch or not self._is_due(found.uid):
            return
        self._written_s[found.uid] = self._clock()
        if await self._write(found.raw, patch):
            who = _subject(found.raw)
            self._events.tell(Story(who, status.UNREADABLE, found.why, warning=True))

    def _told(
        self, known: Known, record: JobRecord, plan: Turn, now: datetime.datetime
    ) -> status.Told:
        verdict = plan.assessments.get(known.uid)
        return status.Told(
            record=record,
            before=known.raw.get("status") or {},
            generation=known.raw["metadata"]["generation"],
            now=now.isoformat(timespec="seconds").replace("+00:00", "Z"),
            num_nodes=known.job.spec.num_nodes,
            racks=self._observer.racks(record.nodes),
            wait=plan.waits.get(known.uid),
            assessment=verdict if isinstance(verdict, Ongoing) else None,
            session=self._sessions.attempt(known.uid, record.attempt),
            ranks=self._observer.ranks(known.uid),
            unreadable=self._jobs.why_unreadable(known.uid),
        )

    def _is_due(self, uid: str) -> bool:
        return uid not in self._written_s or self._clock() - self._written_s[uid] >= RETOLD_S

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
        """The job changed under us: take the version that is there, without waiting for kopf."""
        uid = raw["metadata"]["uid"]
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
        unfit = status.skipped(after)
        for told in story.tell_skipped(who, before=status.skipped(before), after=unfit):
            self._events.tell(told)

    async def _expire(self, known: Known, now: datetime.datetime) -> None:
        """Delete a finished job when its time is over; its pods and placements go with it.

        What refuses that may refuse it for good, so it is asked more and more rarely.
        """
        ttl_s = known.job.spec.ttl_seconds_after_finished
        finished = (known.raw.get("status") or {}).get("finishedAt")
        if ttl_s is None or finished is None:
            return
        if now < datetime.datetime.fromisoformat(finished) + datetime.timedelta(seconds=ttl_s):
            return
        tries, due_s = self._expiries.get(known.uid, (0, self._clock()))
        if self._clock() < due_s:
            return
        wait_s = backoff.delay_s(
            tries, base_s=EXPIRY_BACKOFF_BASE_S, cap_s=EXPIRY_BACKOFF_CAP_S, rng=self._rng
        )
        self._expiries[known.uid] = tries + 1, self._clock() + wait_s
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
