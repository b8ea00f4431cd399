"""Commits of checkpoints: granted once their step is in the job's status.

The response to a commit waits for the status write. So a granted commit survives a crash of the
operator, and at most one checkpoint interval is repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container

from railwright_operator.heartbeats.views import SessionView
from railwright_operator.kube.errors import Unreachable
from railwright_scheduler.attempt import record as records
from railwright_scheduler.attempt.record import JobRecord, ResumePoint

Asked = tuple[int, int]


class Commits:
    """The commits that wait, by job, attempt and step."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._waiting: dict[str, dict[Asked, asyncio.Future[bool]]] = {}

    def __repr__(self) -> str:
        return f"<Commits jobs={len(self._waiting)}>"

    async def ask(self, job_uid: str, attempt: int, step: int) -> None:
        """Wait until the step is in the job's status. Raises Unreachable if its attempt is over."""
        waiting = self._waiting.setdefault(job_uid, {})
        future = waiting.setdefault((attempt, step), asyncio.get_running_loop().create_future())
        self._wake()
        if not await asyncio.shield(future):
            raise Unreachable(f"attempt {attempt} is over: step {step} was not recorded")

    def fold(self, job_uid: str, record: JobRecord, view: SessionView | None) -> JobRecord:
        """The record with the commits that ranks of the live attempt requested or reported."""
        if not record.live:
            return record
        asked = self._waiting.get(job_uid, {})
        steps = [step for attempt, step in asked if attempt == record.attempt]
        newest = view.committed if view is not None else None
        if newest is not None and newest.attempt == record.attempt:
            steps.append(newest.step)
        held = next((p.step for p in record.checkpoints if p.attempt == record.attempt), -1)
        if steps and max(steps) > held:
            record = records.committed(record, attempt=record.attempt, step=max(steps))
        return _resumed(record, view)

    def recorded(self, job_uid: str, record: JobRecord) -> None:
        """Answer the commits that this record, now in the job's status, grants or refuses."""
        waiting = self._waiting.get(job_uid, {})
        held = {point.attempt: point.step for point in record.checkpoints}
        for asked in list(waiting):
            attempt, step = asked
            if attempt == record.attempt and record.live and held.get(attempt, -1) < step:
                continue
            granted = record.live and attempt == record.attempt
            waiting.pop(asked).set_result(granted)
        if not waiting:
            self._waiting.pop(job_uid, None)

    def refuse_all_but(self, job_uids: Container[str]) -> None:
        """Refuse the commits of all jobs but these."""
        for job_uid in list(self._waiting):
            if job_uid not in job_uids:
                self.refuse(job_uid)

    def refuse(self, job_uid: str) -> None:
        """Refuse all commits of a job that is over."""
        for future in self._waiting.pop(job_uid, {}).values():
            future.set_result(False)


def _resumed(record: JobRecord, view: SessionView | None) -> JobRecord:
    """Drop checkpoints after the one that the attempt resumed from: they were invalid."""
    source = view.resumed_from if view is not None else None
    if source is None or source.attempt >= record.attempt:
        return record
    newest = next((p for p in record.checkpoints if p.attempt < record.attempt), None)
    if newest == ResumePoint(source.attempt, source.step):
        return record
    return records.resumed(
        record, attempt=record.attempt, source=ResumePoint(source.attempt, source.step)
    )
