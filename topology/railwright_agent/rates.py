"""How fast the devices of this machine are: products of matrices, and memory.

A device that works is left alone. Others are measured one after the other, for two or three seconds
and with a small part of their memory, as the best of several rounds: whatever disturbs one makes it
slower. Processors are measured where there are no accelerators: who trains on those needs them, and
their pace is what counts there. How large matrices are depends on a device's memory alone, so that
what is measured of two alike can be compared. They hold random numbers, as zeros take less power
and so go faster.

torch measures, where it is installed; without it, numpy measures the processors.
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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from railwright_agent import inside, kernel, load
from railwright_agent.inside import SilentError
from railwright_topology.parts import CPU, Kind, Rates
from railwright_topology.sources import insides, pci, sysfs
from railwright_topology.sources.insides import Document
from railwright_topology.wiring import WiringError

logger = logging.getLogger(__name__)

PRODUCTS_S = 1.0
COPIES_S = 0.5
ROUND_S = 0.05
"""What it takes to start some work and to wait for it is little beside as much."""
DEVICE_S = 20.0
"""One that does not answer by then is left behind."""
MACHINE_S = 300.0
"""For loading torch, and 16 devices."""

MEMORY_SHARE = 0.01
"""What matrices take of it, and what is copied; a cache of torch's may hold both."""
SIDE_MAX = {2: 8192, 4: 2048}
"""Rows of a matrix, by bytes of a number: a millisecond's work for a GPU, 0.1 s for two CPUs."""
SIDE_STEP = 128
COPY_BYTES_MAX = 1 << 29
MEMORY_TAKEN = 0.1
"""More of an accelerator's than this is taken by who trains on it, if nothing else says so; what
asks takes some too."""

EVERY_S = 24 * 3600.0
AGAIN_S = 1800.0
"""Until it is tried again, where something worked or nothing could be measured."""

KINDS = ("cuda", "xpu", "npu")
"""What torch calls accelerators; AMD's are cuda too."""


T = TypeVar("T")


class UnmeasuredError(Exception):
    """Why a device was not measured, as a sentence."""


@dataclass(frozen=True, slots=True)
class _Bench:
    """A device that can be measured: ``products(side)`` and ``copies(bytes)`` return what is to be
    done again and again, and ``wait`` comes back when all of it is done."""

    device: str
    model: str
    by: str
    memory_bytes: int
    number_bytes: int
    products: Callable[[int], Callable[[], object]]
    copies: Callable[[int], Callable[[], object]]
    wait: Callable[[], object]
    taken_bytes: Callable[[], int] = int


_Device = tuple[str, Callable[[], _Bench]]
"""What a tool calls it, and what looks at it."""


def measured(root: Path) -> Document:
    """The rates of all devices that do nothing now, and which were not measured: of accelerators,
    or of the processors where there are none."""
    refused: list[str] = []
    try:
        own = sysfs.parse(kernel.sections(root))
        there = {part.pci for part in own.parts if part.kind == Kind.ACCELERATOR}
        working = load.accelerators(root)
    except (WiringError, SilentError) as error:
        return Document(refused=(f"nothing is measured: {error}",))
    busy = {address for address in there if working.get(address, False)}
    if not there and load.processors():
        busy.add(CPU)
    if busy >= (there or {CPU}):
        # Loading torch alone takes seconds of a processor.
        return Document(busy=tuple(sorted(busy)))
    rates: list[Rates] = []
    seen: set[str] = set()
    for device, looked_at in _devices(root, refused, accelerated=bool(there)):
        try:
            bench = _in_time(looked_at)
            device = bench.device
            if device in seen:
                continue  # Another part of one that is split: the first stands for it.
            seen.add(device)
            if device in busy or _works(bench, root):
                busy.add(device)
            else:
                rates.append(_in_time(functools.partial(_rates, bench)))
        except (UnmeasuredError, SilentError) as error:
            refused.append(f"{device} is not measured: {error}")
    unseen = sorted(there - busy - seen)
    if unseen and all(device == CPU or pci.address(device) for device in seen):
        more = f" and {len(unseen) - 1} more" if unseen[1:] else ""
        refused.append(f"{unseen[0]}{more} is not measured: torch is not there, or does not see it")
    return Document((), tuple(refused), tuple(rates), tuple(sorted(busy)))


def _works(bench: _Bench, root: Path) -> bool:
    """Whether a training has begun since, or there was one that its driver does not tell of."""
    if bench.device == CPU:
        return False
    says = load.accelerators(root).get(bench.device)
    if says is not None:
        return says
    return _in_time(bench.taken_bytes) > MEMORY_TAKEN * bench.memory_bytes


def _devices(root: Path, refused: list[str], *, accelerated: bool) -> Iterator[_Device]:
    torch = _loaded("torch", refused)
    accelerators = [*_accelerators(torch, refused)] if torch is not None else []
    if not accelerated and not accelerators:
        yield from _processors(root, torch, refused)
    yield from accelerators


def _processors(root: Path, torch: Any, refused: list[str]) -> Iterator[_Device]:
    name = kernel.processor(root) or platform.machine()
    processors = f"{name}, {len(os.sched_getaffinity(0))} CPUs"
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if torch is not None:
        yield CPU, lambda: _processors_by_torch(torch, processors, memory_bytes)
    elif (numpy := _loaded("numpy", refused)) is not None:
        yield CPU, lambda: _processors_by_numpy(numpy, processors, memory_bytes)
    else:
        refused.append("nothing is measured: neither torch nor numpy can be loaded")


def _loaded(tool: str, refused: list[str]) -> Any:
    """None where it is not there, or cannot be loaded, as a library that it needs is not."""
    try:
        return importlib.import_module(tool)
    except Exception as error:
        if not isinstance(error, ModuleNotFoundError) or error.name != tool:
            logger.exception("not loaded", extra={"tool": tool})
            refused.append(f"{tool} is there and cannot be loaded: {_said(error)}")
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
        raise UnmeasuredError("torch does not say where it is")
    return _by_torch(
        torch,
        called,
        torch.bfloat16,
        device=address or called,
        model=str(properties.name),
        memory_bytes=int(properties.total_memory),
        number_bytes=2,
        wait=lambda: module.synchronize(at),
        taken_bytes=lambda: _taken(module, at),
    )


def _processors_by_torch(torch: Any, model: str, memory_bytes: int) -> _Bench:
    return _by_torch(
        torch,
        CPU,
        torch.float32,
        device=CPU,
        model=model,
        memory_bytes=memory_bytes,
        number_bytes=4,
        wait=lambda: None,
    )


def _by_torch(torch: Any, at: str, number: Any, **known: Any) -> _Bench:
    def products(side: int) -> Callable[[], object]:
        one, other = (torch.randn(side, side, dtype=number, device=at) for _ in range(2))
        into = torch.empty_like(one)
        return lambda: torch.mm(one, other, out=into)

    def copies(size_bytes: int) -> Callable[[], object]:
        source = torch.randn(size_bytes // 4, dtype=torch.float32, device=at)
        target = torch.empty_like(source)
        return lambda: target.copy_(source)

    return _Bench(by=f"torch {torch.__version__}", products=products, copies=copies, **known)


def _taken(module: Any, at: int) -> int:
    """All of its memory, where torch does not say."""
    ask = getattr(module, "mem_get_info", None)
    free, total = ask(at) if ask else (0, module.get_device_properties(at).total_memory)
    return int(total - free)


def _address(properties: Any) -> str:
    """Where a device is on PCI; empty where torch does not say."""
    said = [getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    if not all(isinstance(number, int) for number in said):
        return ""
    domain, bus, device = said
    return f"{domain:04x}:{bus:02x}:{device:02x}.0"


def _processors_by_numpy(numpy: Any, model: str, memory_bytes: int) -> _Bench:
    random = numpy.random.default_rng(0)

    def products(side: int) -> Callable[[], object]:
        one, other = (random.standard_normal((side, side), numpy.float32) for _ in range(2))
        into = numpy.empty_like(one)
        return lambda: numpy.matmul(one, other, out=into)

    def copies(size_bytes: int) -> Callable[[], object]:
        source = random.standard_normal(size_bytes // 4, numpy.float32)
        target = numpy.empty_like(source)
        return lambda: numpy.copyto(target, source)

    by = f"numpy {numpy.__version__}"
    return _Bench(CPU, model, by, memory_bytes, 4, products, copies, lambda: None)


def _in_time(step: Callable[[], T]) -> T:
    """What a step with a device comes to. Raises UnmeasuredError where it fails, or not in time."""
    found: list[T] = []
    failed: list[Exception] = []

    def take() -> None:
        try:
            found.append(step())
        except Exception as error:
            if not isinstance(error, UnmeasuredError):
                logger.exception("device not measured")
            failed.append(error)

    # Whoever waits for a broken device may wait for ever.
    waiting = threading.Thread(target=take, daemon=True)
    waiting.start()
    waiting.join(DEVICE_S)
    if found:
        return found[0]
    raise UnmeasuredError(_said(failed[0]) if failed else f"no answer in {DEVICE_S:g} s")


def _said(error: Exception) -> str:
    """In one line: drivers write many."""
    first = str(error).partition("\n")[0]
    return first if isinstance(error, UnmeasuredError) else f"{type(error).__name__}: {first}"


def _rates(bench: _Bench) -> Rates:
    taken = MEMORY_SHARE * bench.memory_bytes
    side = math.isqrt(int(taken / 3 / bench.number_bytes)) // SIDE_STEP * SIDE_STEP
    side = max(SIDE_STEP, min(side, SIDE_MAX[bench.number_bytes]))
    product_s = fastest(bench.products(side), bench.wait, PRODUCTS_S)
    copied = max(1 << 20, min(int(taken / 2) // 4 * 4, COPY_BYTES_MAX))
    copy_s = fastest(bench.copies(copied), bench.wait, COPIES_S)
    # Each number of a product is the sum of as many products, and a copy reads and writes.
    flop_per_s, memory_bytes_per_s = round(2 * side**3 / product_s), round(2 * copied / copy_s)
    return Rates(bench.device, bench.model, bench.by, flop_per_s, memory_bytes_per_s)


def fastest(
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

    each(1)  # What is done once: kernels are chosen, and pages touched.
    best = each(1)
    end_s = clock() + budget_s
    while clock() < end_s:
        best = min(best, each(max(1, math.ceil(ROUND_S / best))))
    return best


class Kept:
    """What was measured last of each device of this machine, and when it is time again.

    Another process measures: torch takes half a gigabyte, and a broken driver holds whoever asks.
    """

    def __init__(
        self, root: Path, *, clock: Callable[[], float], say: Callable[[str], object]
    ) -> None:
        self._root = root
        self._clock = clock
        self._say = say
        self._due_s = clock()
        self._rates: dict[str, Rates] = {}
        self._refused: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Kept rates={len(self._rates)} due_s={self._due_s:.0f}>"

    def beside(self, document: Document) -> Document:
        """With what was measured of its node's devices, which is measured first if it is time."""
        if self._clock() >= self._due_s:
            now = _apart(self._root)
            if now.busy:
                self._say(f"not measured while busy: {', '.join(now.busy)}")
            self._rates |= {each.device: each for each in now.rates}
            self._refused = now.refused
            again_s = AGAIN_S if now.busy or not now.rates else EVERY_S
            self._due_s = self._clock() + again_s
        rates = tuple(self._rates[device] for device in sorted(self._rates))
        return dataclasses.replace(document, rates=rates, refused=document.refused + self._refused)


def _apart(root: Path) -> Document:
    command = [sys.executable, "-m", "railwright_agent", "rates", f"--root={root}"]
    try:
        return insides.parse(inside.output(command, MACHINE_S))
    except (SilentError, WiringError) as error:
        return Document(refused=(str(error),))
