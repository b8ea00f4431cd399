"""Silence is counted only while the operator could have received a message."""

from __future__ import annotations

from railwright_operator.heartbeats.reception import (
    ADVANCE_INTERVAL_S,
    ADVANCE_S_MAX,
    ReceptionClock,
)
from railwright_scheduler.model.evidence import SILENT_S


class Loop:
    """An event loop by hand: it ticks every interval, unless it is blocked."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.listening = ReceptionClock(lambda: self.now_s, gap_s=ADVANCE_S_MAX)

    def run(self, for_s: float) -> None:
        for _ in range(round(for_s / ADVANCE_INTERVAL_S)):
            self.now_s += ADVANCE_INTERVAL_S
            self.listening.tick()


def test_listening_clock_follows_a_loop_that_runs() -> None:
    loop = Loop()
    loop.run(for_s=60.0)
    assert abs(loop.listening() - 60.0) < 1e-6
    loop.now_s += ADVANCE_INTERVAL_S
    assert abs(loop.listening() - 60.0 - ADVANCE_INTERVAL_S) < 1e-6


def test_listening_clock_stops_while_the_loop_is_blocked() -> None:
    loop = Loop()
    loop.run(for_s=10.0)
    loop.now_s += 600.0
    assert loop.listening() <= 10.0 + ADVANCE_S_MAX + 1e-6 < 10.0 + SILENT_S
    loop.run(for_s=1.0)
    assert loop.listening() <= 11.0 + ADVANCE_S_MAX + 1e-6


def test_listening_clock_finds_silence_though_the_loop_is_slow() -> None:
    """A loop that is blocked for 2 s again and again still counts most of its time."""
    loop = Loop()
    for _ in range(20):
        loop.now_s += 2.0
        loop.run(for_s=2.0)
    assert loop.listening() > 40.0
