"""Requests in flight: one for each key, and a pause after each failure."""

from __future__ import annotations

import asyncio
import random

from fixtures.executing import settled
from railwright_kube.backoff import Backoff
from railwright_kube.in_flight import RequestsInFlight

BACKOFF_S = Backoff(1.0, 8.0)


class Desk:
    """Requests whose end is recorded, and the time."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.ended: list[tuple[str, str]] = []
        self.gate = asyncio.Event()
        self.requests: RequestsInFlight[str] = RequestsInFlight(
            backoff=BACKOFF_S,
            clock=lambda: self.now_s,
            rng=random.Random(1),
            on_end=lambda key, error: self.ended.append((key, repr(error))),
        )

    async def fail(self, key: str) -> None:
        async def request() -> None:
            raise ValueError(key)

        self.requests.start(key, request())
        await settled()

    async def answer(self) -> None:
        await self.gate.wait()


async def test_a_key_has_one_request_in_flight() -> None:
    desk = Desk()
    desk.requests.start("a", desk.answer())
    await settled()
    assert not desk.requests.is_due("a")
    assert desk.requests.is_due("b")
    assert (list(desk.requests), len(desk.requests), "a" in desk.requests) == (["a"], 1, True)
    desk.gate.set()
    await settled()
    assert desk.requests.is_due("a")
    assert (desk.ended, len(desk.requests)) == ([("a", "None")], 0)


async def test_a_failed_key_alone_pauses_longer_each_time() -> None:
    desk = Desk()
    for longest_s in (1.0, 2.0, 4.0, 8.0, 8.0):
        await desk.fail("a")
        assert not desk.requests.is_due("a")
        assert desk.requests.is_due("b")
        desk.now_s += longest_s / 2 - 0.01
        assert not desk.requests.is_due("a")
        desk.now_s += longest_s / 2 + 0.01
        assert desk.requests.is_due("a")
    assert desk.ended == [("a", "ValueError('a')")] * 5


async def test_a_success_ends_the_row_of_failures() -> None:
    desk = Desk()
    for _ in range(3):
        await desk.fail("a")
    desk.gate.set()
    desk.requests.start("a", desk.answer())
    await settled()
    assert desk.requests.is_due("a")
    await desk.fail("a")
    desk.now_s += BACKOFF_S.base_s
    assert desk.requests.is_due("a")


async def test_late_requests_are_those_in_flight_for_longer() -> None:
    desk = Desk()
    desk.requests.start("early", desk.answer())
    desk.now_s = 2.0
    desk.requests.start("later", desk.answer())
    desk.now_s = 4.0
    assert list(desk.requests.late(3.0)) == ["early"]
    assert list(desk.requests.late(4.0)) == []
    desk.gate.set()
    await settled()
    assert list(desk.requests.late(0.0)) == []


async def test_failures_of_forgotten_keys_do_not_count() -> None:
    desk = Desk()
    await desk.fail("a")
    await desk.fail("b")
    desk.requests.forget_unless(lambda key: key == "b")
    assert desk.requests.is_due("a")
    assert not desk.requests.is_due("b")


async def test_a_cancelled_request_neither_failed_nor_succeeded() -> None:
    desk = Desk()
    await desk.fail("a")
    desk.now_s += BACKOFF_S.base_s
    desk.requests.start("a", desk.answer())
    await settled()
    (task,) = (each for each in asyncio.all_tasks() if each is not asyncio.current_task())
    task.cancel()
    await settled()
    assert [key for key, _ in desk.ended] == ["a"]
    assert "a" not in desk.requests
    await desk.fail("a")
    desk.now_s += BACKOFF_S.base_s
    assert not desk.requests.is_due("a"), "it was the second failure in a row"
