"""An agent that is called polls: it answers probes, goes on probe tasks, and gives up when it is
not needed, or cannot. The operator is scripted; sockets and probes are real."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fixtures import machine_files, machines
from railwright_agent import handshake, hardware, polling, prober
from railwright_agent.handshake import ProbeError
from railwright_agent.hardware import HardwareSources
from railwright_agent.polling import ProbePoller
from railwright_agent.reporting import ControllersClient, ReportRefusedError
from railwright_agent.responder import Responder
from railwright_testbed import waiting
from railwright_testbed.ports import PortReservation
from railwright_topology.probing import addresses, keys

HOST, OTHER = "127.78.0.1", "127.78.0.2"
KEY = "a token of this test alone"
THEIRS = "a token of the other agent"
PAIR = {"source": "node-1", "pairKey": keys.pair_key(THEIRS, "node-1")}

Json = dict[str, Any]


class Scripted(ControllersClient):
    """An operator that answers by ``answers``, one after the other; its last one for good."""

    polls: list[Json]
    answers: list[Json | Exception]

    def __new__(cls, *_: object) -> Scripted:
        made = super().__new__(cls)
        object.__setattr__(made, "polls", [])
        object.__setattr__(made, "answers", [])
        return made

    def post(self, path: str, message: Json, deadline_s: float) -> Json:
        self.polls.append(message)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def teller(tmp_path: Path) -> Scripted:
    return Scripted("http://x", tmp_path / "token", HardwareSources(tmp_path))


@contextlib.contextmanager
def port_of_both() -> Iterator[int]:
    reservation = PortReservation(HOST)
    try:
        yield reservation.port
    finally:
        reservation.release()


def stood_by(teller: Scripted, port: int, *, host: str = HOST) -> list[str]:
    """What is said until it stands by no more."""
    stated: list[str] = []
    ProbePoller(teller, port, stated.append).start(host)
    waiting.until(
        lambda: all(each.name != "probe-tasks" for each in threading.enumerate()),
        "it gave up",
        deadline_s=30,
    )
    return stated


def test_rail_is_chosen_in_a_declared_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without one, the agent answers at the address from which it speaks to the operator."""
    machine_files.write_sysfs(tmp_path, machine_files.sysfs(machines.planted(Random(3))))
    monkeypatch.setenv("PATH", "")
    hardware_reports = hardware.gather(HardwareSources(tmp_path)).hardware_reports
    monkeypatch.setattr(prober, "address_of", lambda _: "10.10.3.4")
    assert polling.rail_address(hardware_reports, ("10.10.0.0/16",)) == "10.10.3.4"
    assert polling.rail_address(hardware_reports, ("10.11.0.0/16",)) is None
    assert polling.rail_address(hardware_reports, ()) is None


def test_agent_without_probe_task_does_nothing(teller: Scripted) -> None:
    teller.answers[:] = [{}]
    with port_of_both() as port:
        assert stood_by(teller, port) == []
    assert teller.polls == [{}]


def probe_task_at(port: int) -> dict[str, Any]:
    """A probe task towards the other agent, as the operator answers it."""
    task = {"key": KEY, "probeTask": 7, "host": OTHER, "port": port, "seconds": 0.05}
    return task | PAIR


async def test_agent_runs_probe_task_and_reports_its_result(
    teller: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(addresses, "refusal", lambda _: "")  # All agents are on this machine.
    with port_of_both() as port:
        probe_task = probe_task_at(port)
        teller.answers[:] = [{"key": KEY}, probe_task | {"crowd": False}, {}]
        async with await Responder(THEIRS).start(OTHER, port):
            stated = await asyncio.to_thread(stood_by, teller, port)
    assert stated == [f"probes are answered at {HOST}:{port}"]
    assert teller.polls[:2] == [{}, {"host": HOST, "port": port}]
    (reported,) = teller.polls[2:]
    assert reported["probeTask"] == 7
    assert 0 < reported["latency_s"] < 0.1
    assert reported["bytes_per_s"] > 1e6


def test_failed_probe_task_is_reported_without_reading(teller: Scripted) -> None:
    with port_of_both() as port:
        probe_task = probe_task_at(port)
        beyond = {**probe_task, "probeTask": 8, "seconds": handshake.SECONDS_MAX + 1}
        teller.answers[:] = [{"key": KEY}, probe_task, beyond, {}]
        stood_by(teller, port)
    place = {"host": HOST, "port": port}
    assert teller.polls[2:] == [place | {"probeTask": 7}, place | {"probeTask": 8}]


@pytest.mark.parametrize("host", ["127.0.0.1", "169.254.169.254", "localhost", "::1", "0.0.0.0"])
def test_agent_goes_nowhere_but_to_nodes(teller: Scripted, host: str) -> None:
    """Whatever the operator says, or someone in its place: nothing is connected to."""
    with port_of_both() as port, socket.create_server(("127.0.0.1", 0)) as service:
        service.settimeout(0.2)
        probe_task = {"key": KEY, "probeTask": 7, "host": host, "seconds": 0.05} | PAIR
        teller.answers[:] = [{"key": KEY}, probe_task | {"port": service.getsockname()[1]}, {}]
        stood_by(teller, port)
        with pytest.raises(TimeoutError):
            service.accept()
    assert teller.polls[2:] == [{"host": HOST, "port": port, "probeTask": 7}]


def test_taken_port_is_reported_with_the_reason(teller: Scripted) -> None:
    teller.answers[:] = [{"key": KEY}, {}]
    with port_of_both() as port:
        stated = stood_by(teller, port, host="192.0.2.1")
    assert stated[0].startswith(f"probes cannot be answered at 192.0.2.1:{port}: ")
    assert teller.polls == [{}, {"unfit": stated[0]}]


def test_unresponsive_operator_is_polled_again_then_left(
    teller: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent gives up after `FAILURES_MAX` failed polls."""
    monkeypatch.setattr(polling, "AGAIN_S", 0.0)
    teller.answers[:] = [ReportRefusedError("503 later")]
    with port_of_both() as port:
        stated = stood_by(teller, port)
    assert stated == ["probe task poll failed: 503 later"] * polling.FAILURES_MAX


async def test_probe_with_older_key_is_refused(teller: Scripted) -> None:
    with port_of_both() as port:
        asked: list[str] = []

        def probes(key: str) -> Callable[[], None]:
            def probe() -> None:
                try:
                    asyncio.run(
                        prober.measure(HOST, port, handshake.pair_key(key, "x"), seconds=0.05)
                    )
                    asked.append("measured")
                except ProbeError as error:
                    asked.append(str(error))

            return probe

        class Probed(Scripted):
            def post(self, path: str, message: Json, deadline_s: float) -> Json:
                if len(self.polls) == 2:
                    probes(KEY)()
                    probes("a newer key of this test")()
                return super().post(path, message, deadline_s)

        probed = Probed("http://x", teller.token_file, teller.sources)
        probed.answers[:] = [{"key": KEY}, {"key": "a newer key of this test"}, {}]
        await asyncio.to_thread(stood_by, probed, port)
    assert "the key is not that of this pair" in asked[0]
    assert asked[1] == "measured"
