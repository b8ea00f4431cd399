"""The reception clock: it stops while the operator cannot receive messages."""

from __future__ import annotations

import contextlib
import socket
import time

import pytest

from fixtures.heartbeat_client import KEY
from fixtures.heartbeat_gangs import Gangs
from railwright_operator.heartbeats.reception import GAP_S, MISSED_S, MISSES_S, ReceptionClock
from railwright_process import server
from railwright_process.server import TICK_S


class Listening:
    """A hearing clock that is ticked as the server does."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.clock = ReceptionClock(lambda: self.now_s)
        self.began_s = self.clock()

    def listen(self, seconds: float) -> None:
        for _ in range(round(seconds / TICK_S)):
            self.now_s += TICK_S
            self.clock.tick()

    @property
    def heard_s(self) -> float:
        return self.clock() - self.began_s


def test_clock_runs_while_listening() -> None:
    listening = Listening()
    listening.listen(60.0)
    assert listening.heard_s == 60.0


def test_blocked_loop_counts_as_one_gap() -> None:
    listening = Listening()
    listening.listen(10.0)
    listening.now_s += 120.0
    assert listening.heard_s == 10.0 + GAP_S
    listening.clock.tick()
    assert listening.heard_s == 10.0 + GAP_S
    listening.listen(5.0)
    assert listening.heard_s == 15.0 + GAP_S


def test_missed_message_stops_the_clock() -> None:
    listening = Listening()
    listening.listen(10.0)
    listening.clock.miss()
    listening.listen(MISSED_S - TICK_S)
    assert listening.heard_s == 10.0
    listening.listen(10.0)
    assert 10.0 <= listening.heard_s - 10.0 <= 10.0 + 2 * TICK_S


def test_constant_misses_stop_the_clock_for_a_fifth() -> None:
    """Connections that fill the accept queue delay only the detection of dead nodes."""
    listening = Listening()
    heard_s = [0.0]
    for _ in range(round(120.0 / TICK_S)):
        listening.listen(TICK_S)
        listening.clock.miss()
        heard_s.append(listening.heard_s)
    window = round(MISSES_S / TICK_S)
    windows = zip(heard_s, heard_s[window:], strict=False)
    assert max(MISSES_S - (after - before) for before, after in windows) <= MISSED_S + TICK_S


def test_clock_never_goes_back() -> None:
    listening = Listening()
    seen = [listening.clock()]
    for step in range(400):
        listening.now_s += (step * 7919 % 13) / 10
        if step % 3:
            listening.clock.tick()
        if step % 17 == 0:
            listening.clock.miss()
        seen.append(listening.clock())
    assert seen == sorted(seen)
    assert GAP_S >= TICK_S


async def test_full_accept_queue_stops_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop does not run between these connections and the tick, so nothing accepts them."""
    monkeypatch.setattr(server, "ACCEPT_QUEUE", 2)
    gangs = Gangs(1, KEY)
    address = await gangs.start()
    try:
        with contextlib.ExitStack() as queued:
            queued.enter_context(socket.create_connection(address, timeout=5))
            assert not gangs.server.is_queue_full()
            queued.enter_context(socket.create_connection(address, timeout=5))
            assert gangs.server.is_queue_full()
            gangs.server._tick()
            stopped_s, since_s = gangs.reception_clock(), time.monotonic()
            while time.monotonic() < since_s + 0.05:
                assert gangs.reception_clock() == stopped_s
    finally:
        await gangs.server.stop()


async def test_clock_does_not_run_before_the_replica_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    gangs, ticks = Gangs(1, KEY), list[bool]()
    await gangs.start()
    try:
        monkeypatch.setattr(gangs.server, "on_tick", ticks.append)
        gangs.ready = False
        gangs.server._tick()
        assert ticks == []
        gangs.ready = True
        gangs.server._tick()
        assert ticks == [False]
    finally:
        await gangs.server.stop()
