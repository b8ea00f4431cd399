"""How fast nodes are beside most others of their kind, by what was measured of their devices.

What a device should reach nobody says, so what most of its kind reach is the rule: devices of one
model, measured by one tool, over all nodes. Each node has one vote, whatever it tells of however
many devices, so that no agent outvotes others. Where few nodes were measured, nobody can say.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from railwright_topology.inside import Conflict
from railwright_topology.pace import Pace
from railwright_topology.parts import CPU, Rates

TOLERANCE = 0.05
"""Two looks at one device, and two devices of one kind, differ by as much."""
NODES_MIN = 3
"""With fewer that have a kind, one of two has no rule to be held against."""
PACE_MIN = 0.01
"""Nothing stands still: times are divided by it."""

_FACTS: Mapping[str, tuple[str, str]] = {
    "flop_per_s": ("multiplies", "FLOP/s"),
    "memory_bytes_per_s": ("copies", "bytes/s"),
}
"""What a device does at a rate, and the rate's unit."""
_PREFIXES = ("", "k", "M", "G", "T", "P")


@dataclass(frozen=True, slots=True)
class Slow:
    """A device that reaches ``measured`` of a fact of its Rates, where most of its model reach
    ``usual``."""

    node: str
    device: str
    model: str
    fact: str
    measured: int
    usual: int

    @property
    def pace(self) -> float:
        """What it reaches over what is usual, to a hundredth."""
        return max(PACE_MIN, round(self.measured / self.usual, 2))


Measured = tuple[str, tuple[Rates, ...]]
"""What a source measured of one node, after the source's name."""


def settled(
    told: Mapping[str, Iterable[Measured]],
) -> tuple[dict[str, tuple[Rates, ...]], dict[str, tuple[Conflict, ...]]]:
    """Of each node the rates that count, and where a second source measured others."""
    rates: dict[str, tuple[Rates, ...]] = {}
    conflicts: dict[str, tuple[Conflict, ...]] = {}
    for node, its in sorted(told.items()):
        # What agents tell is measured now and then, and a file, which has a place, once.
        first, *rest = sorted(its, key=lambda each: ("/" in each[0], each[0], repr(each[1])))
        if not rest:
            rates[node] = first[1]
            continue
        held = {each.device: (first[0], each) for each in first[1]}
        differing: list[Conflict] = []
        for source, theirs in rest:
            for each in theirs:
                by, counts = held.setdefault(each.device, (source, each))
                differing += _differing(source, each, by, counts)
        rates[node] = tuple(each for _, each in held.values())
        if differing:
            conflicts[node] = tuple(differing)
    return rates, conflicts


def _differing(source: str, said: Rates, by: str, held: Rates) -> Iterator[Conflict]:
    """Each fact of one device that two sources measured unlike."""
    for fact in _FACTS if (said.model, said.by) == (held.model, held.by) else ():
        both = getattr(said, fact), getattr(held, fact)
        if min(both) and min(both) < (1 - TOLERANCE) * max(both):
            one, other = (_told(fact, each) for each in both)
            yield Conflict(said.device, fact, source, one, other, by)


def slow(rates: Mapping[str, Iterable[Rates]], accelerated: Collection[str]) -> tuple[Slow, ...]:
    """Devices that are slower than most of their kind, the slowest first; of nodes with
    accelerators these alone."""
    kinds: dict[tuple[str, str], list[tuple[str, Rates]]] = {}
    for node, its in rates.items():
        for each in its:
            if each.device == CPU and node in accelerated:
                continue
            kinds.setdefault((each.model, each.by), []).append((node, each))
    found = (slow for its in kinds.values() for fact in _FACTS for slow in _slow(its, fact))
    return tuple(sorted(found, key=lambda each: (each.pace, each.node, each.device, each.fact)))


def _slow(kind: Iterable[tuple[str, Rates]], fact: str) -> Iterator[Slow]:
    known = [(node, its, rate) for node, its in kind if (rate := getattr(its, fact))]
    by_node: dict[str, list[int]] = {}
    for node, _, rate in known:
        by_node.setdefault(node, []).append(rate)
    if len(by_node) < NODES_MIN:
        return
    # More than half reach it, whatever their number: of the nodes, and on each of its devices.
    usual = statistics.median_low(statistics.median_low(its) for its in by_node.values())
    for node, its, rate in known:
        if rate / usual < 1 - TOLERANCE:
            yield Slow(node, its.device, its.model, fact, rate, usual)


def of(found: Iterable[Slow]) -> dict[str, Pace]:
    """The paces of nodes that slow devices make slow."""
    slowest: dict[str, dict[str, float]] = {}
    for each in found:
        its = slowest.setdefault(each.node, {})
        its[each.fact] = min(each.pace, its.get(each.fact, 1.0))
    return {
        node: Pace(its.get("flop_per_s", 1.0), its.get("memory_bytes_per_s", 1.0))
        for node, its in sorted(slowest.items())
    }


def told(slow: Slow) -> str:
    """What is slow of a node, in words."""
    reached, usual = _told(slow.fact, slow.measured), _told(slow.fact, slow.usual)
    does, _ = _FACTS[slow.fact]
    share = f"{100 * slow.pace:.0f} % of what most {slow.model} do"
    return f"{slow.device} {does} at {share}: {reached} of {usual}"


def _told(fact: str, rate: int) -> str:
    """To two digits: the third changes with every look."""
    digits = float(f"{rate:.2g}")
    power = min(5, max(0, math.floor(math.log10(digits) / 3)))
    _, unit = _FACTS[fact]
    return f"{digits / 1000**power:g} {_PREFIXES[power]}{unit}"
