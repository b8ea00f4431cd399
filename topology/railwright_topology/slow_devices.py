"""How fast nodes are beside most others of their kind, by what was measured of their devices.

What a device should reach nobody says, so what most of its kind reach is the rule: devices of one
model, measured by one tool, over all nodes. Each node has one vote, whatever it tells of however
many devices, so that no agent outvotes others. Where few nodes were measured, nobody can say.
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
"""Two looks at one device, and two devices of one kind, differ by as much."""
NODES_MIN = 3
"""With fewer that have a kind, one of two has no rule to be held against."""
NOISE = 0.02
"""Two measurements of one device that did not change differ by less. A rate that stayed within it
is told as it was, or devices at the border of what is slow would be news each time that they are
measured, and every running job judged again for it. It is held against what is held, so what
becomes slower bit by bit is found out all the same."""
RELATIVE_SPEED_MIN = 0.01
"""Nothing stands still: times are divided by it."""

_FACTS: Mapping[str, tuple[str, str]] = {
    "flop_per_s": ("multiplies", "FLOP/s"),
    "memory_bytes_per_s": ("copies", "bytes/s"),
}
"""What a device does at a rate, and the rate's unit."""
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
        """What it reaches over what is usual, to a hundredth."""
        return max(RELATIVE_SPEED_MIN, round(self.measured / self.usual, 2))


def held(
    before: Iterable[DeviceBenchmark],
    now: Iterable[DeviceBenchmark],
    hardware_reports: Iterable[HardwareReport],
) -> tuple[DeviceBenchmark, ...]:
    """By device, of what was held before and of a document's rates and looks.

    A device keeps its rates until others are told of it: an agent that begins has none yet, and
    cannot measure a device again before the training on it ends. A rate that changed by no more
    than NOISE is the one before. Where looks show accelerators, no others are believed or held.
    """
    parts = (
        part for each in hardware_reports for part in each.parts if part.kind == Kind.ACCELERATOR
    )
    shown = {part.pci for part in parts if part.pci}
    old = {each.device: each for each in before}
    found = {each.device: _steady(each, old.get(each.device, each)) for each in now}
    found = {**found, **{device: its for device, its in old.items() if device not in found}}
    # What has no address, such as xpu:0 or the processors, is in no look.
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
"""What a source measured of one node, after the source's name."""


def settled(
    measurements: Mapping[str, Iterable[Measured]],
) -> tuple[dict[str, tuple[DeviceBenchmark, ...]], dict[str, tuple[HardwareConflict, ...]]]:
    """Of each node the rates that count, and where a second source measured others."""
    benchmarks: dict[str, tuple[DeviceBenchmark, ...]] = {}
    conflicts: dict[str, tuple[HardwareConflict, ...]] = {}
    for node, its in sorted(measurements.items()):
        held: dict[str, tuple[str, DeviceBenchmark]] = {}
        differing: list[HardwareConflict] = []
        # What agents report is measured now and then, and a file, which has a place, once.
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
    """Each fact of one device that two sources measured unlike."""
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
    # More than half reach it, whatever their number: of the nodes, and on each of its devices.
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
    """What is slow of a node, in words."""
    reached, usual = _format_value(slow.fact, slow.measured), _format_value(slow.fact, slow.usual)
    does, _ = _FACTS[slow.fact]
    share = f"{100 * slow.relative_speed:.0f} % of what most {slow.model} do"
    return f"{slow.device} {does} at {share}: {reached} of {usual}"


def _format_value(fact: str, value: int) -> str:
    """To two digits: the third changes with every look."""
    digits = float(f"{value:.2g}")
    power = min(5, max(0, math.floor(math.log10(digits) / 3)))
    _, unit = _FACTS[fact]
    return f"{digits / 1000**power:g} {_PREFIXES[power]}{unit}"
