"""Checkpoints that ranks ask to commit: granted once their step stands on the job's status.

The answer to a commit waits for the status write, so whatever the operator granted it still knows
after a crash, and at most one checkpoint interval is ever redone.
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
    """Who waits for which step of which attempt."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._waiting: dict[str, dict[Asked, asyncio.Future[bool]]] = {}

    def __repr__(self) -> str:
        return f"<Commits jobs={len(self._waiting)}>"

    async def ask(self, job_uid: str, attempt: int, step: int) -> None:
        """Wait until the step is on the job's status. Raises Unreachable: its attempt is over."""
        waiting = self._waiting.setdefault(job_uid, {})
        future = waiting.setdefault((attempt, step), asyncio.get_running_loop().create_future())
        self._wake()
        if not await asyncio.shield(future):
            raise Unreachable(f"attempt {attempt} is over: step {step} was not recorded")

    def fold(self, job_uid: str, record: JobRecord, view: SessionView | None) -> JobRecord:
        """The record with what ranks of the live attempt asked for and their launchers reported."""
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
        """This record is on the job's status: answer those it satisfies, and those it refuses."""
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
        """Every other job is gone: whoever still waits for one of them is answered."""
        for job_uid in list(self._waiting):
            if job_uid not in job_uids:
                self.refuse(job_uid)

    def refuse(self, job_uid: str) -> None:
        """The job is over: nobody may commit any more."""
        for future in self._waiting.pop(job_uid, {}).values():
            future.set_result(False)


def _resumed(record: JobRecord, view: SessionView | None) -> JobRecord:
    """What lay beyond the point the attempt really resumed from was unfit; it stays unread."""
    source = view.resumed_from if view is not None else None
    if source is None or source.attempt >= record.attempt:
        return record
    newest = next((p for p in record.checkpoints if p.attempt < record.attempt), None)
    if newest == ResumePoint(source.attempt, source.step):
        return record
    return records.resumed(
        record, attempt=record.attempt, source=ResumePoint(source.attempt, source.step)
    )
