"""Benchmark the devices of this machine: products of matrices, and memory bandwidth.

Busy devices are not measured. Others are measured one after the other, for two or three seconds
and with a small part of their memory, as the best of several rounds, as disturbances only make a
round slower. Processors are measured only without accelerators, where training uses them. The size
of matrices depends on a device's memory alone, so that results of equal devices are comparable.
They have random numbers, as zeros take less power and are faster.

torch measures if it is installed; without it, numpy measures the processors.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import logging
import math
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from railwright_agent import hardware, kernel, load
from railwright_agent.hardware import SilentError
from railwright_topology.parts import CPU, DeviceBenchmark, Kind
from railwright_topology.sources import hardware_documents, pci, sysfs
from railwright_topology.sources.hardware_documents import Document
from railwright_topology.wiring import WiringError

logger = logging.getLogger(__name__)

PRODUCTS_S = 1.0
COPIES_S = 0.5
ROUND_S = 0.05
"""Long compared to the overhead of starting work and waiting for it."""
DEVICE_S = 20.0
"""Timeout of one device."""
MACHINE_S = 300.0
"""Timeout of the process: loading torch, and 16 devices."""

MEMORY_SHARE = 0.01
"""Share of memory for matrices and for copies; torch may cache both."""
SIDE_MAX = {2: 8192, 4: 2048}
"""Rows of a matrix, by bytes of a number: a millisecond's work for a GPU, 0.1 s for two CPUs."""
SIDE_STEP = 128
COPY_BYTES_MAX = 1 << 29
MEMORY_TAKEN = 0.1
"""An accelerator with more of its memory in use is busy, if no driver reports its load; this
process uses some too."""

EVERY_S = 24 * 3600.0
AGAIN_S = 1800.0
"""Pause before the next try if a device was busy or nothing was measured."""

KINDS = ("cuda", "xpu", "npu")
"""torch's device types of accelerators; AMD's are cuda too."""


T = TypeVar("T")


class UnmeasuredError(Exception):
    """Why a device was not measured, as a sentence."""


@dataclass(frozen=True, slots=True)
class _Tool:
    """What computes on one device: ``random`` takes the bytes of a number and a shape."""

    name: str
    random: Callable[..., Any]
    empty_like: Callable[[Any], Any]
    multiply: Callable[[Any, Any, Any], object]
    copy: Callable[[Any, Any], object]


@dataclass(frozen=True, slots=True)
class _Bench:
    """A device that can be measured: ``products(side)`` and ``copies(bytes)`` return the work to
    repeat, and ``wait`` returns when all of it is done."""

    device: str
    model: str
    tool: _Tool
    memory_bytes: int
    number_bytes: int
    wait: Callable[[], object] = int
    taken_bytes: Callable[[], int] = int

    def products(self, side: int) -> Callable[[], object]:
        one, other = (self.tool.random(self.number_bytes, side, side) for _ in range(2))
        into = self.tool.empty_like(one)
        return lambda: self.tool.multiply(one, other, into)

    def memory_copies(self, size_bytes: int) -> Callable[[], object]:
        source = self.tool.random(4, size_bytes // 4)
        target = self.tool.empty_like(source)
        return lambda: self.tool.copy(target, source)


_Device = tuple[str, Callable[[], _Bench]]
"""The tool's name of a device, and the function that inspects it."""


@dataclass(frozen=True, slots=True)
class _Run:
    """One run over all devices: those inspected, those busy, and the results."""

    root: Path
    busy: set[str]
    seen: set[str] = field(default_factory=set)
    benchmarks: list[DeviceBenchmark] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def measure(self, device: str, inspect: Callable[[], _Bench]) -> None:
        """Measure a device that is idle."""
        try:
            bench = _in_time(inspect)
            device = bench.device
            if device in self.seen:
                return  # Another part of a split device: the first one counts.
            self.seen.add(device)
            if device in self.busy or _works(bench, self.root):
                self.busy.add(device)
            else:
                self.benchmarks.append(_in_time(functools.partial(_benchmark, bench)))
        except (UnmeasuredError, SilentError) as error:
            self.refused.append(f"{device} is not measured: {error}")

    def note_unseen(self, there: Set[str]) -> None:
        """Note the accelerators that torch did not show, if torch gives addresses."""
        unseen = sorted(there - self.busy - self.seen)
        if unseen and all(device == CPU or pci.address(device) for device in self.seen):
            which = f"{unseen[0]} and {len(unseen) - 1} more" if unseen[1:] else unseen[0]
            self.refused.append(f"{which} is not measured: no torch, or it does not show it")


def measure(root: Path) -> Document:
    """Benchmark the idle accelerators, or the processors if there are none; the result lists the
    devices that were not measured."""
    try:
        own = sysfs.parse(kernel.sections(root))
        there = {part.pci for part in own.parts if part.kind == Kind.ACCELERATOR}
        working = load.accelerators(root)
    except (WiringError, SilentError) as error:
        return Document(refused=(f"nothing is measured: {error}",))
    run = _Run(root, {address for address in there if working.get(address, False)})
    if not there and load.processors():
        run.busy.add(CPU)
    # Loading torch alone takes seconds of a processor.
    if not run.busy >= (there or {CPU}):
        for device, inspect in _devices(root, run.refused, accelerated=bool(there)):
            run.measure(device, inspect)
        run.note_unseen(there)
    return Document((), tuple(run.refused), tuple(run.benchmarks), tuple(sorted(run.busy)))


def _works(bench: _Bench, root: Path) -> bool:
    """Whether the device is busy by now, by its driver or by its memory in use."""
    if bench.device == CPU:
        return False
    is_working = load.accelerators(root).get(bench.device)
    if is_working is not None:
        return is_working
    return _in_time(bench.taken_bytes) > MEMORY_TAKEN * bench.memory_bytes


def _devices(root: Path, refused: list[str], *, accelerated: bool) -> Iterator[_Device]:
    torch = _loaded("torch", refused)
    accelerators = [*_accelerators(torch, refused)] if torch is not None else []
    if not accelerated and not accelerators:
        yield from _processors(root, torch, refused)
    yield from accelerators


def _processors(root: Path, torch: Any, refused: list[str]) -> Iterator[_Device]:
    if torch is not None:
        tool = _torch_at(torch, CPU)
    elif (numpy := _loaded("numpy", refused)) is not None:
        tool = _numpy(numpy)
    else:
        refused.append("nothing is measured: neither torch nor numpy can be loaded")
        return
    name = kernel.processor(root) or platform.machine()
    model = f"{name}, {len(os.sched_getaffinity(0))} CPUs"
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    yield CPU, lambda: _Bench(CPU, model, tool, memory_bytes, 4)


def _loaded(tool: str, refused: list[str]) -> Any:
    """Import a module; None if it is not installed or fails to load."""
    try:
        return importlib.import_module(tool)
    except Exception as error:
        if not isinstance(error, ModuleNotFoundError) or error.name != tool:
            logger.exception("not loaded", extra={"tool": tool})
            refused.append(f"{tool} is installed and cannot be loaded: {_reason(error)}")
        return None


def _accelerators(torch: Any, refused: list[str]) -> Iterator[_Device]:
    for kind in KINDS:
        if (module := getattr(torch, kind, None)) is None:
            continue
        try:
            count = _in_time(functools.partial(_count, module))
        except UnmeasuredError as error:
            refused.append(f"no {kind} device is measured: {error}")
            continue
        for at in range(count):
            yield f"{kind}:{at}", functools.partial(_accelerator, torch, module, f"{kind}:{at}", at)


def _count(module: Any) -> int:
    return int(module.device_count()) if module.is_available() else 0


def _accelerator(torch: Any, module: Any, called: str, at: int) -> _Bench:
    properties = module.get_device_properties(at)
    address = _address(properties)
    if called.startswith("cuda") and not address:
        raise UnmeasuredError("torch does not give its PCI address")
    return _Bench(
        address or called,
        str(properties.name),
        _torch_at(torch, called),
        int(properties.total_memory),
        number_bytes=2,
        wait=lambda: module.synchronize(at),
        taken_bytes=lambda: _taken(module, at),
    )


def _torch_at(torch: Any, device: str) -> _Tool:
    numbers = {2: torch.bfloat16, 4: torch.float32}
    return _Tool(
        f"torch {torch.__version__}",
        lambda size, *shape: torch.randn(*shape, dtype=numbers[size], device=device),
        torch.empty_like,
        lambda one, other, into: torch.mm(one, other, out=into),
        lambda target, source: target.copy_(source),
    )


def _numpy(numpy: Any) -> _Tool:
    random = numpy.random.default_rng(0)
    return _Tool(
        f"numpy {numpy.__version__}",
        lambda _, *shape: random.standard_normal(shape, numpy.float32),
        numpy.empty_like,
        lambda one, other, into: numpy.matmul(one, other, out=into),
        numpy.copyto,
    )


def _taken(module: Any, at: int) -> int:
    """Bytes of memory in use; all of it if torch does not report it."""
    if (memory := getattr(module, "mem_get_info", None)) is None:
        return int(module.get_device_properties(at).total_memory)
    free, total = memory(at)
    return int(total - free)


def _address(properties: Any) -> str:
    """The PCI address of a device; empty if torch does not give it."""
    numbers = [getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    if not all(isinstance(number, int) for number in numbers):
        return ""
    domain, bus, device = numbers
    return f"{domain:04x}:{bus:02x}:{device:02x}.0"


def _in_time(step: Callable[[], T]) -> T:
    """Run a step with a device. Raises UnmeasuredError if it fails or exceeds DEVICE_S."""
    found: list[T] = []
    failed: list[Exception] = []

    def take() -> None:
        try:
            found.append(step())
        except Exception as error:
            if not isinstance(error, UnmeasuredError):
                logger.exception("device not measured")
            failed.append(error)

    # A broken device may block its thread for ever.
    waiting = threading.Thread(target=take, daemon=True)
    waiting.start()
    waiting.join(DEVICE_S)
    if found:
        return found[0]
    raise UnmeasuredError(_reason(failed[0]) if failed else f"no answer in {DEVICE_S:g} s")


def _reason(error: Exception) -> str:
    """An error as one line."""
    first = str(error).partition("\n")[0]
    return first if isinstance(error, UnmeasuredError) else f"{type(error).__name__}: {first}"


def _benchmark(bench: _Bench) -> DeviceBenchmark:
    taken = MEMORY_SHARE * bench.memory_bytes
    side = math.isqrt(int(taken / 3 / bench.number_bytes)) // SIDE_STEP * SIDE_STEP
    side = max(SIDE_STEP, min(side, SIDE_MAX[bench.number_bytes]))
    product_s = best_round_s(bench.products(side), bench.wait, PRODUCTS_S)
    copied = max(1 << 20, min(int(taken / 2) // 4 * 4, COPY_BYTES_MAX))
    copy_s = best_round_s(bench.memory_copies(copied), bench.wait, COPIES_S)
    # 2 n^3 operations for a product; a copy reads and writes.
    flop_per_s, memory_bytes_per_s = round(2 * side**3 / product_s), round(2 * copied / copy_s)
    return DeviceBenchmark(
        bench.device, bench.model, bench.tool.name, flop_per_s, memory_bytes_per_s
    )


def best_round_s(
    work: Callable[[], object],
    wait: Callable[[], object],
    budget_s: float,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Seconds that some work takes, in the fastest of the rounds that fit into a time."""

    def each(times: int) -> float:
        began_s = clock()
        for _ in range(times):
            work()
        wait()
        return (clock() - began_s) / times

    each(1)  # Warm up: kernels are chosen, and pages touched.
    best = each(1)
    end_s = clock() + budget_s
    while clock() < end_s:
        best = min(best, each(max(1, math.ceil(ROUND_S / best))))
    return best


@dataclass(slots=True)
class BenchmarkSchedule:
    """The newest benchmark of each device of this machine, and when the next run is due.

    Runs are processes of their own: torch takes half a gigabyte, and a broken driver may hang.
    """

    root: Path
    clock: Callable[[], float]
    log: Callable[[str], object]
    due_s: float = -math.inf
    benchmarks: dict[str, DeviceBenchmark] = field(default_factory=dict)
    refused: tuple[str, ...] = ()

    def add_to(self, document: Document) -> Document:
        """Add the benchmarks of the node's devices to a document, after a run if one is due."""
        if self.clock() >= self.due_s:
            now = _apart(self.root)
            if now.busy:
                self.log(f"not measured while busy: {', '.join(now.busy)}")
            self.benchmarks |= {each.device: each for each in now.benchmarks}
            self.refused = now.refused
            self.due_s = self.clock() + (AGAIN_S if now.busy or not now.benchmarks else EVERY_S)
        benchmarks = tuple(self.benchmarks[device] for device in sorted(self.benchmarks))
        refused = document.refused + self.refused
        return dataclasses.replace(document, benchmarks=benchmarks, refused=refused)


def _apart(root: Path) -> Document:
    command = [sys.executable, "-m", "railwright_agent", "benchmark", f"--root={root}"]
    try:
        return hardware_documents.parse(hardware.output(command, MACHINE_S))
    except (SilentError, WiringError) as error:
        return Document(refused=(str(error),))
