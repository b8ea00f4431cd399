"""While many gangs start, statuses are written more rarely and events are postponed."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from fixtures import attempts, reporting
from fixtures.reporting import Desk
from railwright_operator.report import reporter
from railwright_operator.report.events import POSTPONED_S_MAX, JobEvent
from railwright_scheduler.attempt.gang import Action, WritePlacement
from railwright_scheduler.model.shortages import NotEnoughNodes


def gangs(pods: int) -> tuple[Action, ...]:
    """Gangs of two pods each that are about to start."""
    return tuple(WritePlacement(attempts.entry(attempt)) for attempt in range(1, 1 + pods // 2))


FEW, BULK = gangs(reporter.BULK_PODS - 2), gangs(reporter.BULK_PODS)


def short(free: int) -> NotEnoughNodes:
    return NotEnoughNodes(4, (), 9, free, "", "", 0, ())


async def writes_after(actions: tuple[Action, ...], *, seconds: float) -> int:
    """How many times the status of a waiting job is written after a cycle with these actions."""
    desk = Desk()
    desk.add(reporting.raw_job("waiting"))
    await desk.run_cycle(waits=short(1))
    desk.now_s += reporter.REFRESH_S
    await desk.run_cycle(waits=short(2), actions=actions)
    desk.now_s += seconds
    await desk.run_cycle(waits=short(3))
    return desk.store.count("patch") - 1


async def test_statuses_wait_after_a_bulk_start() -> None:
    """Kubelets report the pods then."""
    assert await writes_after(BULK, seconds=reporter.AFTER_BULK_S - 0.5) == 0
    assert await writes_after(BULK, seconds=reporter.AFTER_BULK_S + 0.5) == 1
    assert await writes_after(FEW, seconds=0.5) == 1


async def test_status_is_written_while_gangs_start_for_long() -> None:
    assert await writes_after(BULK, seconds=reporter.REFRESH_WHILE_BINDING_S) == 1


class Posting:
    """Events of a desk, whose pauses move its clock instead of taking time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.desk = Desk()
        self.pauses: list[float] = []
        monkeypatch.setattr(asyncio, "sleep", self._pause)

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.desk.now_s += seconds

    async def post(self, note: str) -> list[float]:
        """The pauses before this event was posted."""
        job = {"uid": "job-uid", "namespace": "team", "name": "job"}
        self.desk.events.add(JobEvent(job, "Reason", note))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await self.desk.events.run()
        assert "waiting=0" in repr(self.desk.events)
        pauses, self.pauses = self.pauses, []
        return [pause for pause in pauses if pause]


async def test_events_wait_after_a_bulk_start(monkeypatch: pytest.MonkeyPatch) -> None:
    posting = Posting(monkeypatch)
    assert await posting.post("before") == []
    await posting.desk.run_cycle(actions=FEW)
    assert await posting.post("beside a small gang") == []
    await posting.desk.run_cycle(actions=BULK)
    assert await posting.post("beside many") == [reporter.AFTER_BULK_S]
    assert await posting.post("afterwards") == []


async def test_event_waits_no_longer_than_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Although gangs start all the time."""
    posting = Posting(monkeypatch)
    posting.desk.events.postpone(posting.desk.now_s + 10 * POSTPONED_S_MAX)
    assert await posting.post("late") == [POSTPONED_S_MAX]
