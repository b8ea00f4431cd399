"""The process of the controllers: its probes, its Lease, and its end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any, Self, cast

import pytest

from fixtures.shell import until
from railwright_controllers import __main__ as controllers
from railwright_controllers import settings
from railwright_controllers.wiring import ControllerParts
from railwright_process import lifecycle, replica
from railwright_process.wiring import ReplicaParts

ADDRESSES = tuple(f"RAILWRIGHT_{name}_ADDRESS" for name in ("AGENT", "PROBE", "METRICS"))


@pytest.mark.parametrize(
    ("held", "unsynced", "age_s", "stuck"),
    [
        (True, [], controllers.STUCK_S - 1, False),
        (True, [], controllers.STUCK_S + 1, True),
        (False, [], controllers.STUCK_S + 1, False),
        (True, ["Node"], controllers.STUCK_S + 1, False),
    ],
    ids=["reports", "hangs", "waits for the Lease", "still lists"],
)
def test_only_a_holder_that_reports_nothing_is_stuck(
    held: bool, unsynced: list[str], age_s: float, stuck: bool
) -> None:
    reporter = SimpleNamespace(completed_age_s=lambda: age_s)
    parts = SimpleNamespace(fabric_reporter=reporter, unsynced=lambda: unsynced)
    lease = SimpleNamespace(held=lambda: held)
    assert bool(controllers._stuck(cast(Any, parts), cast(Any, lease))) is stuck


@pytest.mark.parametrize(
    ("unsynced", "available", "problem", "missing"),
    [([], True, "", 0), (["Node"], True, "", 1), ([], False, "", 1), ([], True, "no Secret", 1)],
)
def test_process_is_ready_with_lists_keys_and_certificate(
    unsynced: list[str], available: bool, problem: str, missing: int
) -> None:
    keys = SimpleNamespace(available=available)
    certificates = SimpleNamespace(missing=problem)
    parts = SimpleNamespace(unsynced=lambda: unsynced, keys=keys, certificates=certificates)
    assert len(ReplicaParts.unready(cast(Any, parts))) == missing


class Double:
    """A double of a part of the process: its arguments, and the calls of it."""

    def __init__(self, *given: Any, **named: Any) -> None:
        self.named = named
        self.calls: list[str] = []


class ThreadDouble(Double):
    def leader_address(self) -> str:
        return ""

    def held(self) -> bool:
        return True

    def start(self) -> None:
        self.calls.append("start")

    def stop(self, *, deadline_s: float) -> None:
        self.calls.append("stop")


class EndpointsDouble(Double):
    async def start(self, host: str, port: int) -> None:
        self.calls.append("start")

    async def stop(self) -> None:
        self.calls.append("stop")


class ApiDouble(Double):
    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.calls.append("closed")


class Process:
    """The process, whose parts do no work."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: dict[str, Any] = {}
        self.signals: dict[int, Callable[[], None]] = {}
        self.ends_in_time = 0
        doubles = {
            "Leadership": ThreadDouble,
            "Endpoints": EndpointsDouble,
            "HttpTransport": Double,
            "Api": ApiDouble,
        }
        for name, kind in doubles.items():
            monkeypatch.setattr(replica, name, self._constructor(name, kind))
        kopf = self._constructor("KopfThread", ThreadDouble)
        monkeypatch.setattr(controllers, "KopfThread", kopf)
        monkeypatch.setattr(ControllerParts, "run", self._work)
        monkeypatch.setattr(lifecycle, "end_in_time", self._end_in_time)
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "add_signal_handler", self.signals.__setitem__)
        chosen = settings.from_environment(
            dict.fromkeys(ADDRESSES, "127.0.0.1:0")
            | {"RAILWRIGHT_AGENTS_URL": "http://controllers"}
        )
        self.running = asyncio.create_task(controllers._run(chosen))

    def _constructor(self, name: str, kind: type[Double]) -> Callable[..., Double]:
        def construct(*given: Any, **named: Any) -> Double:
            self.made[name] = made = kind(*given, **named)
            return made

        return construct

    async def _work(self, *_: object) -> None:
        await asyncio.Event().wait()

    def _end_in_time(self) -> None:
        self.ends_in_time += 1

    @property
    def lease(self) -> Any:
        return self.made["Leadership"]


@pytest.fixture
async def process(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Process]:
    started = Process(monkeypatch)
    await until(lambda: "Leadership" in started.made and started.lease.calls, "its start")
    yield started
    started.running.cancel()
    await asyncio.gather(started.running, return_exceptions=True)


async def test_lost_lease_ends_the_process(process: Process) -> None:
    """It would never lead again, and its probes would not show it."""
    process.lease.named["on_lost"]()
    async with asyncio.timeout(5):
        assert await process.running == 1
    assert process.ends_in_time == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_signal_ends_the_process_and_releases_the_lease(
    process: Process, number: signal.Signals
) -> None:
    process.signals[number]()
    async with asyncio.timeout(5):
        assert await process.running == 0
    assert process.lease.calls == ["start", "stop"]


async def test_only_the_holder_of_the_lease_writes(process: Process) -> None:
    assert process.made["Api"].named["may_write"] == process.lease.held
    assert process.lease.named["name"] == controllers.LEASE == "railwright-controllers"


async def test_process_that_lists_is_alive_and_not_ready(process: Process) -> None:
    probes = process.made["Endpoints"]
    assert probes.named["alive"]() == []
    assert probes.named["ready"]()
