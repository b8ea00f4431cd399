"""How an agent measures devices: the best of several rounds, and none that works.

The nvidia-smi and the torch here are written for these tests: what they print and offer are the
documented formats.
"""

from __future__ import annotations

import importlib
import itertools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from fixtures import machine_files, machines
from fixtures.devices import Module, torch
from railwright_agent import benchmark, load
from railwright_topology.parts import CPU
from railwright_topology.sources import hardware_documents
from railwright_topology.sources.hardware_documents import Document

MACHINE = next(m for m in map(machines.planted, map(Random, range(99))) if len(m.gpus) == 4)
ADDRESSES = [gpu.address for gpu in MACHINE.gpus]
IDLE = "0, 4, 81559"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little is measured, and the processors do nothing."""
    monkeypatch.setattr(benchmark, "SIDE_MAX", {2: 128, 4: 128})
    monkeypatch.setattr(benchmark, "COPY_BYTES_MAX", 1 << 20)
    monkeypatch.setattr(benchmark, "PRODUCTS_S", 0.0)
    monkeypatch.setattr(benchmark, "COPIES_S", 0.0)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file system of a machine with four GPUs, and no program that can be called."""
    machine_files.write_sysfs(tmp_path, machine_files.sysfs(MACHINE))
    (tmp_path / "tools").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "tools"))
    return tmp_path


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file system of a machine without accelerators, and no program that can be called."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def nvidia_smi(root: Path, *gpus: str, on: str = "", status: int = 0) -> None:
    """Says of each GPU how busy it is, and on which a process runs."""
    stated = "\n".join(
        f"0000{address.upper()}, {gpu}" for address, gpu in zip(ADDRESSES, gpus, strict=True)
    )
    tool = root / "tools/nvidia-smi"
    tool.write_text(
        f"#!/bin/sh\ncase $1 in --query-gpu=pci.bus_id,*) echo '{stated}';; "
        f"--query-compute-apps=*) {f'echo 0000{on.upper()}' if on else ':'};; esac\nexit {status}\n"
    )
    tool.chmod(0o755)


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    return lambda module: monkeypatch.setitem(sys.modules, "torch", module)


def devices(document: Document) -> list[str]:
    return [each.device for each in document.benchmarks]


def test_every_idle_device_is_measured(root: Path, use: Callable[[Any], None]) -> None:
    nvidia_smi(root, IDLE, IDLE, IDLE, IDLE)
    cuda = Module(ADDRESSES)
    use(torch(cuda=cuda))
    document = benchmark.measure(root)
    assert devices(document) == ADDRESSES
    assert not document.busy
    assert not document.refused
    assert {each.by for each in document.benchmarks} == {"torch 9.9"}
    assert {each.model for each in document.benchmarks} == {"GPU of a test"}
    assert all(each.flop_per_s and each.memory_bytes_per_s for each in document.benchmarks)
    assert {*cuda.waited} == {0, 1, 2, 3}
    assert hardware_documents.parse(hardware_documents.written(document)) == document


@pytest.mark.parametrize(
    "stated",
    ["6, 4, 81559", "0, 9000, 81559", "[N/A], [N/A], 81559", "100, 70000, 81559", "0, 4"],
    ids=["computes", "holds memory", "is split", "trains", "less is said"],
)
def test_a_device_that_works_or_may_work_is_not_measured(
    root: Path, use: Callable[[Any], None], stated: str
) -> None:
    nvidia_smi(root, IDLE, stated, IDLE, IDLE)
    cuda = Module(ADDRESSES)
    use(torch(cuda=cuda))
    document = benchmark.measure(root)
    assert devices(document) == [ADDRESSES[0], *ADDRESSES[2:]]
    assert document.busy == (ADDRESSES[1],)
    assert 1 not in cuda.waited
    assert not document.refused


def test_a_device_that_a_process_is_on_is_not_measured(
    root: Path, use: Callable[[Any], None]
) -> None:
    nvidia_smi(root, IDLE, IDLE, IDLE, IDLE, on=ADDRESSES[3])
    use(torch(cuda=Module(ADDRESSES)))
    assert benchmark.measure(root).busy == (ADDRESSES[3],)


def test_a_training_that_begins_meanwhile_is_seen(
    root: Path, use: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = itertools.chain([{}, {ADDRESSES[0]: False}], itertools.repeat({ADDRESSES[1]: True}))
    monkeypatch.setattr(load, "accelerators", lambda root: next(answers))
    use(torch(cuda=Module(ADDRESSES)))
    document = benchmark.measure(root)
    assert document.busy == (ADDRESSES[1],)
    assert devices(document) == [ADDRESSES[0], *ADDRESSES[2:]]


@pytest.mark.parametrize("waiting", [0.0, 10.0])
def test_where_all_accelerators_work_not_even_torch_is_loaded(
    root: Path, use: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch, waiting: float
) -> None:
    """Whether their processors have much to do, or wait for them."""
    nvidia_smi(root, *["99, 70000, 81559"] * 4)
    monkeypatch.setattr(os, "getloadavg", lambda: (waiting, 0.0, 0.0))
    use(SimpleNamespace())  # It would break.
    assert benchmark.measure(root) == Document(busy=tuple(sorted(ADDRESSES)))


def test_busy_processors_are_not_measured_and_torch_not_loaded(
    bare: Path, use: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (999.0, 0.0, 0.0))
    use(SimpleNamespace())
    assert benchmark.measure(bare) == Document(busy=(CPU,))


def test_processors_that_stand_alone_are_measured(bare: Path, use: Callable[[Any], None]) -> None:
    use(torch())
    document = benchmark.measure(bare)
    assert devices(document) == [CPU]
    assert not document.refused


def test_accelerators_that_torch_alone_knows_of_are_some(
    bare: Path, use: Callable[[Any], None]
) -> None:
    use(torch(npu=Module(["", ""])))
    assert devices(benchmark.measure(bare)) == ["npu:0", "npu:1"]


def test_tool_without_utilisation_stops_all_measurements(root: Path) -> None:
    nvidia_smi(root, IDLE, IDLE, IDLE, IDLE, status=9)
    (refused,) = benchmark.measure(root).refused
    assert refused.startswith("nothing is measured: nvidia-smi --query-gpu=")
    assert refused.endswith("ended with 9")


def test_amd_driver_shows_busy_accelerators(root: Path, use: Callable[[Any], None]) -> None:
    for address, percent in zip(ADDRESSES, ["0", "0", "40", "0"], strict=True):
        device = root / "sys/bus/pci/devices" / address
        (device / "gpu_busy_percent").write_text(percent)
        (device / "mem_info_vram_used").write_text(str(1 << 20))
        (device / "mem_info_vram_total").write_text(str(64 << 30))
    use(torch(cuda=Module(ADDRESSES)))
    assert benchmark.measure(root).busy == (ADDRESSES[2],)


@pytest.mark.parametrize(("taken", "busy"), [(0.02, ()), (0.5, ("xpu:0",))])
def test_used_memory_shows_busy_device_without_driver(
    root: Path, use: Callable[[Any], None], taken: float, busy: tuple[str, ...]
) -> None:
    use(torch(xpu=Module([""], taken=taken)))
    document = benchmark.measure(root)
    assert document.busy == busy
    assert devices(document) == ["xpu:0"] * (not busy)


def test_device_of_unknown_load_counts_as_busy(
    root: Path, use: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(Module, "mem_get_info")
    use(torch(npu=Module([""])))
    assert benchmark.measure(root).busy == ("npu:0",)


def test_broken_device_is_reported_and_others_measured(
    root: Path, use: Callable[[Any], None]
) -> None:
    cuda = Module([*ADDRESSES, ADDRESSES[0]])
    cuda.broken = {1}
    use(torch(cuda=cuda))
    document = benchmark.measure(root)
    assert devices(document) == [ADDRESSES[0], *ADDRESSES[2:]]
    assert document.refused == (
        f"{ADDRESSES[1]} is not measured: RuntimeError: CUDA error: an illegal memory access",
    )


def test_unreadable_device_is_reported_and_others_measured(
    root: Path, use: Callable[[Any], None]
) -> None:
    nvidia_smi(root, IDLE, IDLE, IDLE, IDLE)
    cuda = Module(ADDRESSES)
    cuda.unreadable = {1}
    use(torch(cuda=cuda))
    document = benchmark.measure(root)
    assert devices(document) == [ADDRESSES[0], *ADDRESSES[2:]]
    assert document.refused[0] == (
        "cuda:1 is not measured: RuntimeError: CUDA error: uncorrectable ECC error encountered"
    )


def test_device_without_memory_query_is_reported(root: Path, use: Callable[[Any], None]) -> None:
    cuda = Module(ADDRESSES)
    cuda.unasked = {0}
    use(torch(cuda=cuda))
    document = benchmark.measure(root)
    assert devices(document) == ADDRESSES[1:]
    (refused,) = document.refused
    assert refused.startswith(f"{ADDRESSES[0]} is not measured: RuntimeError: CUDA error: CUDA-cap")


def test_kind_with_failing_driver_is_reported_others_measured(
    root: Path, use: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> int:
        raise OSError("libascendcl.so: cannot open shared object file")

    npu = Module([""])
    monkeypatch.setattr(npu, "device_count", fail)
    use(torch(cuda=Module(ADDRESSES), npu=npu))
    document = benchmark.measure(root)
    assert devices(document) == ADDRESSES
    assert document.refused == (
        "no npu device is measured: OSError: libascendcl.so: cannot open shared object file",
    )


@pytest.mark.parametrize(
    "error",
    [
        OSError("libcudart.so.12: cannot open shared object file"),
        ImportError("libcudnn.so.9: cannot open shared object file"),
        ModuleNotFoundError("No module named 'typing_extensions'", name="typing_extensions"),
    ],
)
def test_torch_import_error_is_reported(
    bare: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    load_module = importlib.import_module

    def load_no_torch(name: str) -> Any:
        if name == "torch":
            raise error
        return load_module(name)

    monkeypatch.setattr(importlib, "import_module", load_no_torch)
    document = benchmark.measure(bare)
    assert document.refused[0] == (
        f"torch is installed and cannot be loaded: {type(error).__name__}: {error}"
    )
    assert document.benchmarks[0].by.startswith("numpy ")


def test_any_error_of_a_device_is_reported(
    root: Path, use: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda = Module(ADDRESSES)

    def fail(at: int) -> None:
        raise TypeError(f"no device {at}")

    monkeypatch.setattr(cuda, "synchronize", fail)
    use(torch(cuda=cuda))
    assert benchmark.measure(root).refused == tuple(
        f"{address} is not measured: TypeError: no device {at}"
        for at, address in enumerate(ADDRESSES)
    )


def test_a_device_that_hangs_is_left_behind(
    root: Path, use: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark, "DEVICE_S", 1.0)
    cuda = Module(ADDRESSES)
    cuda.hanging = {0}
    use(torch(cuda=cuda))
    document = benchmark.measure(root)
    cuda.released.set()
    assert devices(document) == ADDRESSES[1:]
    assert document.refused == (f"{ADDRESSES[0]} is not measured: no answer in 1 s",)


def test_numpy_measures_processors_without_torch(bare: Path, use: Callable[[Any], None]) -> None:
    use(None)
    document = benchmark.measure(bare)
    assert devices(document) == [CPU]
    assert document.benchmarks[0].by.startswith("numpy ")
    assert not document.refused


def test_missing_torch_is_reported_for_accelerators(root: Path, use: Callable[[Any], None]) -> None:
    use(None)
    document = benchmark.measure(root)
    assert not document.benchmarks
    first = min(ADDRESSES)
    assert document.refused == (
        f"{first} and 3 more is not measured: no torch, or it does not show it",
    )


def test_missing_torch_and_numpy_are_reported(
    bare: Path, use: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    use(None)
    monkeypatch.setitem(sys.modules, "numpy", None)
    (refused,) = benchmark.measure(bare).refused
    assert refused == "nothing is measured: neither torch nor numpy can be loaded"


def test_the_fastest_round_counts_and_the_first_does_not() -> None:
    # Seconds of each round's work; a round of several has the time of all of them.
    times = [9.0, 0.5, 0.4, 0.3, 0.6, 0.4]
    now = [0.0]
    began: list[float] = []

    def work() -> None:
        now[0] += times[min(len(began), len(times) - 1)]
        began.append(now[0])

    assert benchmark.best_round_s(work, lambda: None, 1.5, lambda: now[0]) == pytest.approx(0.3)
    assert len(began) == 6


def test_short_work_is_repeated_within_a_round() -> None:
    now = [0.0]
    waits: list[float] = []

    def work() -> None:
        now[0] += 0.001

    took = benchmark.best_round_s(work, lambda: waits.append(now[0]), 0.1, lambda: now[0])
    assert took == pytest.approx(0.001)
    assert len(waits) == 4
