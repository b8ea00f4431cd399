"""When an agent measures the devices of its machine, and what it tells of them until then."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from railwright_agent import benchmark
from railwright_agent.benchmark import BenchmarkSchedule
from railwright_topology.parts import CPU, DeviceBenchmark
from railwright_topology.sources import hardware_documents
from railwright_topology.sources.hardware_documents import Document

BENCHMARKS = DeviceBenchmark(CPU, "a processor", "torch 9.9", 10**12, 10**10)


class Clock:
    """Seconds that a test lets pass, and what is measured by then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
        self.now_s = 0.0
        self.finds = Document()
        self.measured = 0
        self.log: list[str] = []
        monkeypatch.setattr(benchmark, "_apart", self._apart)
        self.kept = BenchmarkSchedule(root, clock=lambda: self.now_s, log=self.log.append)

    def _apart(self, root: Path) -> Document:
        self.measured += 1
        return self.finds

    def reported(self, *, after_s: float = 0.0) -> Document:
        self.now_s += after_s
        return self.kept.add_to(Document(refused=("of others",)))


def test_rates_are_measured_once_and_again_after_a_day(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clock = Clock(monkeypatch, tmp_path)
    clock.finds = Document(benchmarks=(BENCHMARKS,), refused=("a GPU is broken",))
    reported = clock.reported()
    assert reported.benchmarks == (BENCHMARKS,)
    assert reported.refused == ("of others", "a GPU is broken")
    assert clock.reported(after_s=benchmark.EVERY_S - 1) == reported
    assert clock.measured == 1
    clock.reported(after_s=1)
    assert clock.measured == 2


def test_busy_device_keeps_benchmark_and_is_retried_sooner(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clock = Clock(monkeypatch, tmp_path)
    clock.finds = Document(benchmarks=(BENCHMARKS,))
    clock.reported()
    clock.finds = Document(busy=(CPU,))
    assert clock.reported(after_s=benchmark.EVERY_S).benchmarks == (BENCHMARKS,)
    assert clock.log == ["not measured while busy: cpu"]
    clock.finds = Document(benchmarks=(DeviceBenchmark(CPU, "a processor", "torch 9.9", 10**11),))
    assert clock.reported(after_s=benchmark.AGAIN_S).benchmarks == clock.finds.benchmarks


def test_failed_benchmark_is_retried_sooner(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clock = Clock(monkeypatch, tmp_path)
    clock.finds = Document(refused=("nvidia-smi: no answer",))
    assert clock.reported().refused == ("of others", "nvidia-smi: no answer")
    clock.finds = Document(benchmarks=(BENCHMARKS,))
    after = clock.reported(after_s=benchmark.AGAIN_S)
    assert after == Document(refused=("of others",), benchmarks=(BENCHMARKS,))


def test_another_process_measures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "python"
    own.write_text(f"#!/bin/sh\n[ \"$*\" = '-m railwright_agent benchmark --root={tmp_path}' ] && ")
    with own.open("a") as script:
        script.write(f"echo '{hardware_documents.written(Document(benchmarks=(BENCHMARKS,)))}'\n")
    own.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(own))
    reported = BenchmarkSchedule(tmp_path, clock=lambda: 0.0, log=lambda _: None).add_to(Document())
    assert reported == Document(benchmarks=(BENCHMARKS,))


def test_subprocess_measures_and_its_failure_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    reported = BenchmarkSchedule(tmp_path, clock=lambda: 0.0, log=lambda _: None).add_to(Document())
    (refused,) = reported.refused
    assert "No such file" in refused
