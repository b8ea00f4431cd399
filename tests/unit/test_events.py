"""The queue of events: bounded, and posted whatever becomes of single requests."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from fixtures import attempts, reporting
from fixtures.reporting import Desk
from railwright_kube import errors
from railwright_operator.report import events
from railwright_operator.report.events import BURST, REPEAT_S, TOKEN_S, JobEvent
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.model.reasons import QueueNotFound

JOB = {"uid": "job-uid", "namespace": "team", "name": "job"}
DROPPED = "railwright_events_dropped_total"


ATTEMPTS = 100


def event(note: str, *, job: dict[str, str] = JOB, is_end: bool = False) -> JobEvent:
    return JobEvent(job, "Reason", note, is_end=is_end)


async def test_event_that_cannot_be_posted_stops_no_other() -> None:
    desk = Desk()
    path = "/apis/events.k8s.io/v1/namespaces/team/events"
    desk.store.refusals["create", path] = errors.ForbiddenError(403, "Forbidden", message="no")

    def allow() -> None:
        if desk.store.count("create") > 1:
            desk.store.refusals.clear()

    desk.store.meanwhile["create", path] = allow
    for note in ("first", "second"):
        desk.events.add(event(note))
    assert await desk.posted() == [("Reason", "second")]
    assert desk.registry.get_sample_value(DROPPED) == 1


async def test_oldest_events_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "QUEUE_MAX", 2)
    desk = Desk()
    for note in ("first", "second", "third"):
        desk.events.add(event(note))
    assert await desk.posted() == [("Reason", "second"), ("Reason", "third")]
    assert desk.registry.get_sample_value(DROPPED) == 1


async def test_repeated_event_is_posted_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as it is remembered; the event posted last is forgotten last."""
    monkeypatch.setattr(events, "REMEMBERED_MAX", 2)
    desk = Desk()

    async def posted(*notes: str) -> list[str]:
        before = len(await desk.posted())
        for note in notes:
            desk.events.add(event(note))
        return [note for _, note in (await desk.posted())[before:]]

    assert await posted("a", "b", "a", "b") == ["a", "b"]
    desk.now_s += REPEAT_S
    assert await posted("a") == ["a"]
    assert await posted("c", "a") == ["c"]
    assert await posted("b") == ["b"]
    assert "remembered=2" in repr(desk.events)


async def test_events_keep_their_order_when_the_clock_steps_back() -> None:
    """kubectl describe shows them in the order of their names."""
    desk = Desk()
    for number, unix_s in enumerate((2_000.5, 1_000.5, 1_000.5)):
        desk.events.wall_clock = lambda now_s=unix_s: now_s  # type: ignore[misc]
        desk.events.add(event(str(number)))
        await desk.posted()
    made = [raw for path, raw in desk.store.objects.items() if "/events/" in path]
    names = [raw["metadata"]["name"] for raw in made]
    assert names == sorted({*names})
    times = [raw["eventTime"] for raw in made]
    assert times[0] > times[1] == times[2]


@contextlib.asynccontextmanager
async def running(desk: Desk) -> AsyncIterator[None]:
    """Events are posted within the block, and before it begins."""
    posting = asyncio.create_task(desk.events.run())
    for _ in range(reporting.STEPS):
        await asyncio.sleep(0)
    yield
    for _ in range(reporting.STEPS):
        await asyncio.sleep(0)
    posting.cancel()


def of_namespace(namespace: str, note: str) -> JobEvent:
    return event(note, job={"uid": f"{namespace}-uid", "namespace": namespace, "name": "job"})


async def test_slow_namespace_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own events are posted one at a time, in order."""
    desk, answers, calls = Desk(), asyncio.Event(), list[str]()
    create = desk.store.create

    async def slowly(path: str, body: dict[str, Any]) -> Any:
        calls.append(body["note"])
        if "/slow/" in path:
            await answers.wait()
        return await create(path, body)

    monkeypatch.setattr(desk.store, "create", slowly)
    for note in ("slow 1", "slow 2", "slow 3"):
        desk.events.add(of_namespace("slow", note))
    desk.events.add(of_namespace("fast", "fast 1"))
    desk.events.add(of_namespace("fast", "fast 2"))
    async with running(desk):
        assert calls == ["slow 1", "fast 1", "fast 2"]
        answers.set()
    assert [note for _, note in await desk.posted()] == [
        *("fast 1", "fast 2", "slow 1", "slow 2", "slow 3")
    ]


async def test_slow_namespaces_have_few_events_in_flight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events, "POSTS_MAX", 2)
    desk, answers, calls = Desk(), asyncio.Event(), list[str]()

    async def slowly(_: str, body: dict[str, Any]) -> Any:
        calls.append(body["note"])
        await answers.wait()

    monkeypatch.setattr(desk.store, "create", slowly)
    for namespace in "abc":
        desk.events.add(of_namespace(namespace, namespace))
    async with running(desk):
        assert calls == ["a", "b"]
        answers.set()
    assert calls == ["a", "b", "c"]


async def test_namespaces_take_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events, "POSTS_MAX", 1)
    desk = Desk()
    for note in ("a 1", "a 2", "b 1", "c 1", "b 2"):
        desk.events.add(of_namespace(note[0], note))
    notes = [note for _, note in await desk.posted()]
    assert notes == ["a 1", "b 1", "c 1", "a 2", "b 2"]


async def test_longest_namespace_drops_its_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "QUEUE_MAX", 3)
    desk = Desk()
    for note in ("a 1", "b 1", "b 2", "b 3", "c 1"):
        desk.events.add(of_namespace(note[0], note))
    notes = sorted(note for _, note in await desk.posted())
    assert notes == ["a 1", "b 3", "c 1"]
    assert desk.registry.get_sample_value(DROPPED) == 2


async def run_attempt(desk: Desk, attempt: int, phase: Phase) -> None:
    """An attempt starts, runs, and ends with this phase of the job, in three seconds."""
    cause = replace(attempts.FAILED, message=f"end {attempt}")
    starting = replace(attempts.RUNNING, attempt=attempt, ended=attempt - 1, phase=Phase.STARTING)
    running = replace(starting, phase=Phase.RUNNING)
    over = replace(running, ended=attempt, phase=phase, nodes=(), last_termination=cause)
    for record in (starting, running, over):
        await desk.run_cycle({"job-uid": record})
        desk.now_s += 1


async def test_job_that_ends_again_and_again_posts_few_events() -> None:
    """100 attempts in five minutes: the end of each last one is posted within one TOKEN_S."""
    desk = Desk()
    desk.add(reporting.raw_job("job"))
    started_s, late = desk.now_s, 0
    for attempt in range(1, ATTEMPTS):
        await run_attempt(desk, attempt, Phase.RECOVERING)
        notes = [note for reason, note in await desk.posted() if reason == "RankFailed"]
        late = max(late, attempt - int(notes[-1].split()[1].rstrip(":")))
    assert late <= TOKEN_S / 3 + 1
    posted = len(await desk.posted())
    assert posted <= BURST + (desk.now_s - started_s) / TOKEN_S
    # Each attempt is Scheduled, Running and RankFailed; recoveries are equal, the last end waits.
    assert desk.registry.get_sample_value(DROPPED) == 3 * (ATTEMPTS - 1) + 1 - posted - 1
    await run_attempt(desk, ATTEMPTS, Phase.FAILED)
    last = (await desk.posted())[-2:]
    assert [reason for reason, _ in last] == ["RankFailed", "Failed"]
    assert last[0][1] == f"attempt {ATTEMPTS}: end {ATTEMPTS}"


async def test_last_end_is_posted_once_its_job_has_a_token() -> None:
    desk = Desk()
    for number in range(BURST):
        desk.events.add(event(str(number)))
    for number in range(BURST):
        desk.events.add(event(f"end {number}", is_end=True))
        desk.events.add(event(f"after {number}"))
    desk.now_s += TOKEN_S - 1
    await desk.run_cycle()
    assert len(await desk.posted()) == BURST
    desk.now_s += 1
    await desk.run_cycle()
    assert [note for _, note in await desk.posted()][BURST:] == [f"end {BURST - 1}"]


async def test_late_end_is_not_posted_twice() -> None:
    desk = Desk()
    for at in range(BURST):
        desk.events.add(event(f"note {at}"))
    end = event("attempt 9: lost", is_end=True)
    desk.events.add(end)
    desk.now_s += TOKEN_S
    desk.events.add_late(desk.now_s)
    desk.now_s += TOKEN_S
    desk.events.add(end)
    assert (await desk.posted()).count(("Reason", end.note)) == 1


async def test_limits_of_few_jobs_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The least recent job has all tokens again once its limit is forgotten."""
    monkeypatch.setattr(events, "REMEMBERED_MAX", 2)
    desk = Desk()

    async def posted(uid: str, prefix: str) -> int:
        before = len(await desk.posted())
        for number in range(2 * BURST):
            desk.events.add(event(f"{prefix} {number}", job=JOB | {"uid": uid}))
        return len(await desk.posted()) - before

    assert [await posted(uid, "first") for uid in ("a", "b", "a")] == [BURST, BURST, 0]
    assert await posted("c", "first") == BURST
    assert [await posted(uid, "second") for uid in ("c", "b", "a")] == [0, 0, BURST]


STORY = [
    *("QueueNotFound", "Scheduled", "Running", "RankFailed", "Recovering"),
    *("QueueNotFound", "Scheduled", "Running", "Succeeded"),
]


async def test_burst_is_the_shortest_that_has_the_whole_story(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A job that waits, starts, fails, waits again, resumes and completes, all in no time."""
    reasons = []
    for burst in (BURST, BURST - 1):
        monkeypatch.setattr(events, "BURST", burst)
        desk = Desk()
        desk.add(reporting.raw_job("job"))
        await run_story(desk)
        reasons.append([reason for reason, _ in await desk.posted()])
    assert reasons == [STORY, [each for at, each in enumerate(STORY) if at != BURST - 1]]


async def run_story(desk: Desk) -> None:
    """The records of the story, each in a cycle of its own."""
    waits = QueueNotFound("team", ())
    failed = replace(attempts.RECOVERING, last_termination=attempts.FAILED)
    await desk.run_cycle({"job-uid": JobRecord()}, waits=waits)
    for before, at in ((JobRecord(), 1), (failed, 2)):
        starting = replace(before, phase=Phase.STARTING, attempt=at, nodes=attempts.NODES)
        running = replace(starting, phase=Phase.RUNNING)
        over = replace(running, phase=Phase.SUCCEEDED, ended=2, nodes=())
        for record in (starting, running):
            await desk.run_cycle({"job-uid": record})
        if at == 2:
            await desk.run_cycle({"job-uid": over})
            return
        await desk.run_cycle({"job-uid": failed})
        queued = replace(failed, phase=Phase.QUEUED)
        await desk.run_cycle({"job-uid": queued}, waits=waits)
