"""The queue of events: bounded, and posted whatever becomes of single requests."""

from __future__ import annotations

import pytest

from fixtures.reporting import Desk
from railwright_kube import errors
from railwright_operator.report import events
from railwright_operator.report.events import REPEAT_S, JobEvent

JOB = {"uid": "job-uid", "namespace": "team", "name": "job"}
DROPPED = "railwright_events_dropped_total"


def event(note: str) -> JobEvent:
    return JobEvent(JOB, "Reason", note)


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
