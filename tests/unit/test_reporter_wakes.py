"""After which writes of a status the next scheduling cycle is due at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from fixtures import reporting
from fixtures.reporting import Desk
from railwright_kube import errors
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.model.reasons import QueueNotFound
from railwright_scheduler.model.shortages import NotEnoughNodes

Write = Callable[[str, dict[str, Any]], Coroutine[Any, Any, dict[str, Any]]]

SHORT = NotEnoughNodes(4, (), 9, 1, "", "", 0, ())


def held(write: Write, *, until: asyncio.Event) -> Write:
    """The same, once the event is set."""

    async def later(path: str, body: dict[str, Any]) -> dict[str, Any]:
        await until.wait()
        return await write(path, body)

    return later


async def test_only_a_new_record_wakes_the_next_cycle() -> None:
    desk = Desk()
    path = desk.add(reporting.raw_job("job"))
    await desk.run_cycle(waits=SHORT)
    assert (desk.store.count("patch", path), desk.woken) == (1, 0)
    await desk.run_cycle(
        {"job-uid": JobRecord(phase=Phase.STARTING, attempt=1, nodes=("n0", "n1"))}
    )
    assert (desk.store.count("patch", path), desk.woken) == (2, 1)
    desk.store.objects[path]["status"]["message"] = "something else"
    desk.store.objects[path]["metadata"]["resourceVersion"] = "900"
    desk.jobs.absorb(desk.store.objects[path])
    desk.now_s += 60.0
    await desk.run_cycle()
    assert (desk.store.count("patch", path), desk.woken) == (3, 1)


async def test_job_that_changed_meanwhile_wakes_the_next_cycle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A write was under way in the next cycle, or lost to another's."""
    desk = Desk()
    path = desk.add(reporting.raw_job("job"))
    answer = asyncio.Event()
    monkeypatch.setattr(desk.store, "patch", held(desk.store.patch, until=answer))
    await desk.run_cycle(waits=SHORT)
    await desk.run_cycle(waits=QueueNotFound("team", ()))
    answer.set()
    await desk.run_cycle(waits=QueueNotFound("team", ()))
    assert desk.woken == 1
    conflict = errors.ConflictError(409, "Conflict", message="changed")
    desk.store.refusals["patch", f"{path}/status"] = conflict
    await desk.run_cycle(waits=QueueNotFound("other", ()))
    assert desk.woken == 2
