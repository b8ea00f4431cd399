"""A cycle that does not end: the job is marked, the Lease given back, the process ended."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from railwright_operator import watchdog
from railwright_operator.watchdog import CHECKS_MAX, EXIT_CODE, CycleWatchdog
from railwright_scheduler.isolation import Handling, Isolation, Stage

DEADLINE_S = 10.0


class Process:
    """What the watchdog does to its process."""

    def __init__(self, *, api_fails: bool = False) -> None:
        self.did: list[object] = []
        self.ended = threading.Event()
        self._api_fails = api_fails
        self.watchdog = CycleWatchdog(
            mark=self.mark,
            release=lambda: self.did.append("released"),
            end=self.end,
        )

    def mark(self, handling: Handling) -> None:
        if self._api_fails:
            raise OSError("no API server")
        self.did.append(handling)

    def end(self, code: int) -> None:
        self.did.append(code)
        self.ended.set()


@pytest.mark.parametrize("api_fails", [False, True])
def test_hang_marks_the_job_and_ends_the_process(
    api_fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "CHECK_S", 0.02)
    process, isolation = Process(api_fails=api_fails), Isolation()
    process.watchdog.start()

    def hang() -> None:
        assert process.ended.wait(DEADLINE_S)

    with process.watchdog.watch(isolation):
        isolation.run(Stage.DECISION, "a", hang, otherwise=None)
    marked = [] if api_fails else [(Stage.DECISION, "a")]
    assert process.did == [*marked, "released", EXIT_CODE]


def test_slow_cycle_of_many_jobs_marks_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """No single job is to blame for it."""
    monkeypatch.setattr(watchdog, "CHECK_S", 0.02)
    process, isolation = Process(), Isolation()
    process.watchdog.start()
    with process.watchdog.watch(isolation):
        for number in range(100_000):
            isolation.run(
                Stage.DECISION, str(number), lambda: process.ended.wait(0.005), otherwise=False
            )
            if process.ended.is_set():
                break
    assert process.did == ["released", EXIT_CODE]


def test_time_outside_of_a_cycle_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "CHECK_S", 0.02)
    process = Process()
    process.watchdog.start()
    for _ in range(4):
        with process.watchdog.watch(Isolation()):
            assert not process.ended.wait(0.02 * CHECKS_MAX / 4)
    process.watchdog.stop()
    assert process.did == []


HANGING_IN_C = """
import ctypes
from railwright_operator import watchdog
from railwright_scheduler.isolation import Isolation

watchdog.CYCLE_DEADLINE_S, watchdog.LAST_RESORT_S = 0.5, 0.5
process = watchdog.CycleWatchdog(mark=print, release=lambda: print("released"))
process.start()
with process.watch(Isolation()):
    pass
ctypes.PyDLL(None).sleep(2)
print("outside", flush=True)
with process.watch(Isolation()):
    ctypes.PyDLL(None).sleep(60)
"""


def test_hang_that_keeps_the_interpreter_ends_the_process() -> None:
    """No thread of Python can run meanwhile."""
    found = subprocess.run(
        [sys.executable, "-c", HANGING_IN_C],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S + 20,
        check=False,
    )
    assert found.returncode == -signal.SIGALRM
    assert found.stdout == "outside\n"
    assert 'File "<string>", line 14' in found.stderr


def test_time_after_a_cycle_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests to an API server that does not answer may take longer than a cycle."""
    monkeypatch.setattr(watchdog, "CHECK_S", 0.001)
    process = Process()
    process.watchdog.start()
    with process.watchdog.watch(Isolation()):
        pass
    assert not process.ended.wait(50 * 0.001 * CHECKS_MAX)
    process.watchdog.stop()


def test_job_handled_again_and_again_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each handling ends, so none of them is to blame for a slow cycle."""
    monkeypatch.setattr(watchdog, "CHECK_S", 0.02)
    process, isolation = Process(), Isolation()
    process.watchdog.start()
    with process.watchdog.watch(isolation):
        while not process.ended.is_set():
            isolation.run(Stage.DECISION, "a", lambda: process.ended.wait(0.005), otherwise=False)
    assert process.did == ["released", EXIT_CODE]
