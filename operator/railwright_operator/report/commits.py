"""Commits of checkpoints: granted once their step is in the job's status.

The response to a commit waits for the status write. So a granted commit survives a crash of the
operator, and at most one checkpoint interval is repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container

from railwright_kube.errors import Unreachable
from railwright_operator.heartbeats.views import SessionView
from railwright_scheduler.attempt import record as records
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.attempt.resume_points import GroupReport, ResumePoint
from railwright_scheduler.model.rank_layout import RankLayout

Asked = tuple[str, int, int]
"""Group, attempt and step."""


class Commits:
    """The commits that wait, by job, group, attempt and step."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._waiting: dict[str, dict[Asked, asyncio.Future[bool]]] = {}

    def __repr__(self) -> str:
        return f"<Commits jobs={len(self._waiting)}>"

    async def ask(self, job_uid: str, group: str, attempt: int, step: int) -> None:
        """Wait until the step is in the job's status. Raises Unreachable if its attempt is over."""
        waiting = self._waiting.setdefault(job_uid, {})
        asked = (group, attempt, step)
        future = waiting.setdefault(asked, asyncio.get_running_loop().create_future())
        self._wake()
        if not await asyncio.shield(future):
            raise Unreachable(f"attempt {attempt} is over: step {step} was not recorded")

    def fold(
        self, job_uid: str, record: JobRecord, view: SessionView | None, layout: RankLayout
    ) -> JobRecord:
        """The record with the commits that groups of the live attempt requested or reported."""
        waiting: dict[str, list[int]] = {group: [] for group in layout.masters}
        for group, attempt, step in self._waiting.get(job_uid, ()):
            if attempt == record.attempt:
                waiting.setdefault(group, []).append(step)
        reports = [_report(group, record.attempt, its, view) for group, its in waiting.items()]
        return records.reported(record, reports, layout)

    def recorded(self, job_uid: str, record: JobRecord) -> None:
        """Answer the commits that this record, now in the job's status, grants or refuses."""
        waiting = self._waiting.get(job_uid, {})
        held = {(point.group, point.attempt): point.step for point in record.checkpoints}
        for asked in list(waiting):
            group, attempt, step = asked
            granted = record.live and attempt == record.attempt
            if granted and held.get((group, attempt), -1) < step:
                continue
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


def _report(group: str, attempt: int, steps: list[int], view: SessionView | None) -> GroupReport:
    """The checkpoints of a group: the ``steps`` that wait, and its last heartbeat."""
    master = view.master_of(group) if view is not None else None
    committed = master.committed if master is not None else None
    if committed is not None and committed.attempt == attempt:
        steps = [*steps, committed.step]
    loaded = master.resumed_from if master is not None else None
    source = None if loaded is None else ResumePoint(group, loaded.attempt, loaded.step)
    return GroupReport(group, committed=max(steps, default=None), resumed_from=source)
