"""Derive the relative speed of nodes from the benchmarks of their devices.

The expected speed of a device is unknown, so the median of its kind is the reference: devices of
one model, measured by one tool, over all nodes. Each node has one vote, however many devices it
reports, so that no agent outvotes others. Kinds on few nodes have no reference. `fabric` calls it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from railwright_topology.grouping import group
from railwright_topology.hardware_inventory import HardwareConflict
from railwright_topology.parts import CPU, PARTS_MAX, DeviceBenchmark, HardwareReport, Kind
from railwright_topology.relative_speed import RelativeSpeed

TOLERANCE = 0.05
"""Repeated measurements of a device, and devices of one kind, differ by up to this share."""
NODES_MIN = 3
"""Kinds on fewer nodes have no reference speed."""
NOISE = 0.02
"""Measurements of an unchanged device differ by less. A value within it keeps the value before, so
that devices at the threshold of slow do not change with each measurement, which would revalidate
every running job. It is compared with the kept value, so that gradual changes are detected."""
RELATIVE_SPEED_MIN = 0.01
"""Lower bound, as times are divided by it."""

_FACTS: Mapping[str, tuple[str, str]] = {
    "flop_per_s": ("multiplies", "FLOP/s"),
    "memory_bytes_per_s": ("copies", "bytes/s"),
}
"""By field: the verb of the sentence, and the unit."""
_PREFIXES = ("", "k", "M", "G", "T", "P")


@dataclass(frozen=True, slots=True)
class Slow:
    """A device that reaches ``measured`` of a fact of its DeviceBenchmark, where most devices of
    its model reach ``usual``."""

    node: str
    device: str
    model: str
    fact: str
    measured: int
    usual: int

    @property
    def relative_speed(self) -> float:
        """Measured over usual speed, rounded to a hundredth."""
        return max(RELATIVE_SPEED_MIN, round(self.measured / self.usual, 2))


def held(
    before: Iterable[DeviceBenchmark],
    now: Iterable[DeviceBenchmark],
    hardware_reports: Iterable[HardwareReport],
) -> tuple[DeviceBenchmark, ...]:
    """Merge new benchmarks with those held before, by device.

    A device keeps its benchmark until a new one is reported: a restarted agent has none yet, and
    cannot measure a device before the training on it ends. A value that changed by no more than
    NOISE keeps the value before. If the hardware reports have accelerators, benchmarks of others
    are dropped.
    """
    parts = (
        part for each in hardware_reports for part in each.parts if part.kind == Kind.ACCELERATOR
    )
    shown = {part.pci for part in parts if part.pci}
    old = {each.device: each for each in before}
    found = {each.device: _steady(each, old.get(each.device, each)) for each in now}
    found = {**found, **{device: its for device, its in old.items() if device not in found}}
    # Devices without address, such as xpu:0 or the processors, are in no hardware report.
    there = [
        its for device, its in found.items() if not shown or "." not in device or device in shown
    ]
    return tuple(sorted(there[:PARTS_MAX], key=lambda each: each.device))


def _steady(now: DeviceBenchmark, before: DeviceBenchmark) -> DeviceBenchmark:
    if (now.model, now.by) != (before.model, before.by):
        return now
    flop_per_s, memory_bytes_per_s = (
        old if abs(new - old) <= NOISE * old else new
        for new, old in (
            (now.flop_per_s, before.flop_per_s),
            (now.memory_bytes_per_s, before.memory_bytes_per_s),
        )
    )
    return replace(now, flop_per_s=flop_per_s, memory_bytes_per_s=memory_bytes_per_s)


Measured = tuple[str, tuple[DeviceBenchmark, ...]]
"""A source's name, and its benchmarks of one node."""


def settled(
    measurements: Mapping[str, Iterable[Measured]],
) -> tuple[dict[str, tuple[DeviceBenchmark, ...]], dict[str, tuple[HardwareConflict, ...]]]:
    """The benchmarks that count for each node, and conflicts with those of further sources."""
    benchmarks: dict[str, tuple[DeviceBenchmark, ...]] = {}
    conflicts: dict[str, tuple[HardwareConflict, ...]] = {}
    for node, its in sorted(measurements.items()):
        held: dict[str, tuple[str, DeviceBenchmark]] = {}
        differing: list[HardwareConflict] = []
        # Agents measure repeatedly, and count before files, whose sources have a "/".
        for source, measured in sorted(its, key=lambda its: ("/" in its[0], its[0], repr(its[1]))):
            for each in measured:
                by, counts = held.setdefault(each.device, (source, each))
                if by != source:
                    differing += _differing(source, each, by, counts)
        benchmarks[node] = tuple(each for _, each in held.values())
        if differing:
            conflicts[node] = tuple(differing)
    return benchmarks, conflicts


def _differing(
    source: str, reported: DeviceBenchmark, by: str, held: DeviceBenchmark
) -> Iterator[HardwareConflict]:
    """The facts of one device on which two sources differ."""
    for fact in _FACTS if (reported.model, reported.by) == (held.model, held.by) else ():
        both = getattr(reported, fact), getattr(held, fact)
        if min(both) and min(both) < (1 - TOLERANCE) * max(both):
            one, other = (_format_value(fact, each) for each in both)
            yield HardwareConflict(reported.device, fact, source, one, other, by)


def slow(
    benchmarks: Mapping[str, Iterable[DeviceBenchmark]], accelerated: Collection[str]
) -> tuple[Slow, ...]:
    """Devices that are slower than most of their kind, the slowest first; of nodes with
    accelerators these alone."""
    kinds = group(
        ((each.model, each.by), (node, each))
        for node, its in benchmarks.items()
        for each in its
        if each.device != CPU or node not in accelerated
    )
    found = (slow for its in kinds.values() for fact in _FACTS for slow in _slow(its, fact))
    return tuple(
        sorted(found, key=lambda each: (each.relative_speed, each.node, each.device, each.fact))
    )


def _slow(kind: Iterable[tuple[str, DeviceBenchmark]], fact: str) -> Iterator[Slow]:
    having = [(node, its, value) for node, its in kind if (value := getattr(its, fact))]
    by_node = group((node, value) for node, _, value in having)
    if len(by_node) < NODES_MIN:
        return
    # The lower median of nodes, each by the lower median of its devices.
    usual = statistics.median_low(statistics.median_low(its) for its in by_node.values())
    for node, its, value in having:
        if value / usual < 1 - TOLERANCE:
            yield Slow(node, its.device, its.model, fact, value, usual)


def of(found: Iterable[Slow]) -> dict[str, RelativeSpeed]:
    """The relative speeds of nodes that slow devices make slow."""
    slowest_last = sorted(found, key=lambda each: -each.relative_speed)
    slowest = {(each.node, each.fact): each.relative_speed for each in slowest_last}
    return {
        node: RelativeSpeed(*(slowest.get((node, fact), 1.0) for fact in _FACTS))
        for node in sorted({node for node, _ in slowest})
    }


def describe(slow: Slow) -> str:
    """A slow device as a sentence."""
    reached, usual = _format_value(slow.fact, slow.measured), _format_value(slow.fact, slow.usual)
    does, _ = _FACTS[slow.fact]
    share = f"{100 * slow.relative_speed:.0f} % of what most {slow.model} do"
    return f"{slow.device} {does} at {share}: {reached} of {usual}"


def _format_value(fact: str, value: int) -> str:
    """A value with two digits: the third changes with every measurement."""
    digits = float(f"{value:.2g}")
    power = min(5, max(0, math.floor(math.log10(digits) / 3)))
    _, unit = _FACTS[fact]
    return f"{digits / 1000**power:g} {_PREFIXES[power]}{unit}"
