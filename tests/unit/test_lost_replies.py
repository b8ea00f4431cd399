"""A status write whose reply is lost: its events and metrics are those of one that was answered."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from fixtures import attempts, reporting
from fixtures.reporting import Desk
from railwright_kube import errors
from railwright_operator.report import reporter

RUNNING = {"phase": "Running", "attempt": 1, "nodes": ["n0", "n1"]}
LOST = replace(attempts.RECOVERING, last_termination=attempts.LOST, failure_times_s=(1,))
ENDED = "railwright_attempts_ended_total"


async def ended_attempt(desk: Desk) -> list[str]:
    """The reasons of the events after the node of a running job is lost."""
    desk.add(reporting.raw_job("job", status=RUNNING))
    await desk.run_cycle({"job-uid": LOST})
    for _ in range(3):
        desk.now_s += 10.0
        await desk.run_cycle()
    return [reason for reason, _ in await desk.posted()]


def lose_first_reply(desk: Desk, monkeypatch: pytest.MonkeyPatch, *, is_applied: bool) -> None:
    """The first patch is applied or not, and ends as OutcomeUnknown."""
    patch = desk.store.patch
    lost: list[str] = []

    async def first_unknown(path: str, body: dict[str, Any]) -> dict[str, Any]:
        if lost:
            return await patch(path, body)
        lost.append(path)
        if is_applied:
            await patch(path, body)
        raise errors.OutcomeUnknown("reply lost")

    monkeypatch.setattr(desk.store, "patch", first_unknown)


def ended_count(desk: Desk) -> float | None:
    return desk.registry.get_sample_value(ENDED, {"cause": "NodeLost"})


async def test_applied_write_without_reply_posts_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next cycle finds the record in the status and has nothing to write."""
    answered, lost = Desk(), Desk()
    lose_first_reply(lost, monkeypatch, is_applied=True)
    expected = await ended_attempt(answered)
    assert await ended_attempt(lost) == expected == ["NodeLost", "Recovering"]
    assert ended_count(lost) == ended_count(answered) == 1
    assert lost.store.count("patch") == answered.store.count("patch")


async def test_write_that_was_not_applied_posts_events_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is written again after a pause; the first one counts nothing."""
    desk = Desk()
    lose_first_reply(desk, monkeypatch, is_applied=False)
    desk.add(reporting.raw_job("job", status=RUNNING))
    await desk.run_cycle({"job-uid": LOST})
    assert await desk.posted() == []
    desk.now_s += reporter.PAUSE_S.cap_s
    await desk.run_cycle({"job-uid": LOST})
    assert [reason for reason, _ in await desk.posted()] == ["NodeLost", "Recovering"]
    assert ended_count(desk) == 1


async def test_commit_that_a_webhook_dropped_is_not_granted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = Desk()
    path = desk.add(reporting.raw_job("job", status=RUNNING))
    patch = desk.store.patch

    async def without_checkpoints(where: str, body: dict[str, Any]) -> dict[str, Any]:
        body["status"].pop("checkpoints")
        return await patch(where, body)

    monkeypatch.setattr(desk.store, "patch", without_checkpoints)
    grant = asyncio.create_task(desk.commits.ask("job-uid", "worker", 1, 10))
    await asyncio.sleep(0)
    await desk.run_cycle()
    assert "checkpoints" not in desk.store.objects[path]["status"]
    assert not grant.done()
    monkeypatch.setattr(desk.store, "patch", patch)
    await desk.run_cycle()
    assert grant.done()
