"""How fast this machine's own processors are, by the real torch and the real numpy.

They differ from machine to machine, and so does what both reach; that both count alike does not.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from railwright_agent import benchmark
from railwright_topology.parts import CPU, DeviceBenchmark
from railwright_topology.sources import hardware_documents

APART = 30
"""Times: a mistaken unit is further off, and no two tools on one busy machine are."""


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file system of a machine on which nothing works and which has no accelerators, as far as
    one asks."""
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    monkeypatch.setattr(benchmark, "KINDS", ())
    return tmp_path


def processors(root: Path, by: str) -> DeviceBenchmark:
    """What is measured of them now."""
    (found,) = benchmark.measure(root).benchmarks
    assert found.device == CPU
    assert found.by.split()[0] == by
    return found


def test_torch_and_numpy_measure_same_processors_in_same_units(
    alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_torch = processors(alone, "torch")
    monkeypatch.setitem(sys.modules, "torch", None)
    by_numpy = processors(alone, "numpy")
    assert by_torch.model == by_numpy.model
    for fact in ("flop_per_s", "memory_bytes_per_s"):
        both = getattr(by_torch, fact), getattr(by_numpy, fact)
        assert min(both) > 0
        assert max(both) < APART * min(both)


def test_command_output_can_be_read_and_has_each_device_once() -> None:
    command = [sys.executable, "-m", "railwright_agent", "benchmark"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    document = hardware_documents.parse(answer.stdout)
    reported = [*(each.device for each in document.benchmarks), *document.busy]
    assert reported == [CPU] or CPU not in reported
    assert reported
    assert len({*reported}) == len(reported)
    assert not document.hardware_reports
