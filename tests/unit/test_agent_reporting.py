"""An agent tells what it sees when it changes, now and then, and again after a refusal."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from fixtures import machine_files, machines
from railwright_agent import benchmark, reporting
from railwright_agent.benchmark import BenchmarkSchedule
from railwright_agent.hardware import HardwareSources
from railwright_agent.reporting import ControllersClient, ControllersUrlError, ReportRefusedError
from railwright_topology.parts import CPU, DeviceBenchmark
from railwright_topology.sources import hardware_documents
from railwright_topology.sources.hardware_documents import Document


class EnoughError(Exception):
    """The test has seen what it wanted."""


class Scripted(ControllersClient):
    """Takes documents, or refuses them, as it is told to."""

    taken: list[str]
    refusals: int

    def __new__(cls, *_: object) -> Scripted:
        made = super().__new__(cls)
        object.__setattr__(made, "taken", [])
        object.__setattr__(made, "refusals", 0)
        return made

    def report(self, document: str) -> None:
        if self.refusals:
            object.__setattr__(self, "refusals", self.refusals - 1)
            raise ReportRefusedError("503 later")
        self.taken.append(document)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    machine_files.write_sysfs(tmp_path, machine_files.sysfs(machines.planted(Random(3))))
    monkeypatch.setenv("PATH", "")
    return tmp_path


def run(
    teller: ControllersClient,
    rounds: int,
    each: Callable[[int], object] = lambda _: None,
    measuring: BenchmarkSchedule | None = None,
) -> tuple[list[float], list[str]]:
    """So many pauses, and what was said."""
    pauses: list[float] = []
    stated: list[str] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        each(len(pauses))
        if len(pauses) == rounds:
            raise EnoughError

    with pytest.raises(EnoughError):
        reporting.run(
            teller,
            on_poll_request=lambda *_: None,
            pause=pause,
            rng=Random(0),
            log=stated.append,
            benchmark=measuring,
        )
    return pauses, stated


def test_unchanged_report_is_sent_every_few_reads(root: Path) -> None:
    teller = Scripted("http://x", root / "token", HardwareSources(root))
    pauses, stated = run(teller, 2 * reporting.REPORT_EVERY + 1)
    assert len(teller.taken) == 3
    assert len({*teller.taken}) == 1
    assert not stated
    assert all(0.5 * reporting.READ_S <= pause <= 1.5 * reporting.READ_S for pause in pauses)


def test_changed_report_is_sent_at_next_read(root: Path) -> None:
    teller = Scripted("http://x", root / "token", HardwareSources(root))
    port = next(iter((root / "sys/class/infiniband").iterdir())) / "ports/1/state"

    def unplug(pause: int) -> None:
        if pause == 1:
            port.write_text("1: DOWN")

    run(teller, 2, unplug)
    before, after = (
        hardware_documents.parse(text).hardware_reports[0].parts for text in teller.taken
    )
    assert [part.up for part in before].count(False) == 0
    assert [part.up for part in after].count(False) == 1


def test_benchmarks_are_reported_with_hardware_and_on_change(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    teller = Scripted("http://x", root / "token", HardwareSources(root))
    found = [
        Document(benchmarks=(DeviceBenchmark(CPU, "Xeon", "torch 9.9", speed),)) for speed in (7, 8)
    ]
    monkeypatch.setattr(benchmark, "_apart", lambda root: found.pop(0))
    now_s = 0.0

    def pass_by(pause: int) -> None:
        nonlocal now_s
        now_s += benchmark.EVERY_S / 2

    kept = BenchmarkSchedule(root, clock=lambda: now_s, log=lambda _: None)
    run(teller, 4, pass_by, kept)
    reported = [hardware_documents.parse(text) for text in teller.taken]
    speeds = [[benchmarks.flop_per_s for benchmarks in each.benchmarks] for each in reported]
    assert speeds == [[], [7], [8]]
    assert [each.hardware_reports[0].source for each in reported] == ["sysfs", "sysfs", "sysfs"]


def test_refused_report_is_retried_soon_then_with_backoff(root: Path) -> None:
    """The agent sends its report again after growing pauses."""
    teller = Scripted("http://x", root / "token", HardwareSources(root))
    object.__setattr__(teller, "refusals", 12)
    pauses, stated = run(teller, 13)
    assert len(teller.taken) == 1
    assert stated == ["report failed: 503 later"] * 12
    assert pauses[0] <= 1.5 * reporting.AGAIN_S
    assert max(pauses) <= 1.5 * reporting.AGAIN_S_MAX


@pytest.mark.parametrize("operator", ["", "operator:8470", "ftp://x", "http://", "http://x:port"])
def test_an_address_that_is_none_is_refused_at_once(operator: str, root: Path) -> None:
    with pytest.raises(ControllersUrlError, match="expected https://ADDRESS:PORT"):
        ControllersClient(operator, root / "token", HardwareSources(root)).report("{}")


def test_missing_operator_and_token_are_retried(root: Path) -> None:
    """The agent starts before the operator and its token file exist."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    teller = ControllersClient(f"http://127.0.0.1:{port}", root / "token", HardwareSources(root))
    with pytest.raises(ReportRefusedError, match="FileNotFoundError"):
        teller.report("{}")
    (root / "token").write_text("token")
    with pytest.raises(ReportRefusedError, match="ConnectionRefusedError"):
        teller.report("{}")
