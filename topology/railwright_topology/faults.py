"""Find cabling faults; each is a sentence that names the port.

The intended cabling is unknown, so each part is compared with its peers: a host with hosts of its
kind, a switch with switches that have the same neighbours. `networks` calls it.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable, Iterator, Mapping

import networkx as nx

from railwright_topology import port_assignment, speeds
from railwright_topology.grouping import group
from railwright_topology.layers import Layers, peers
from railwright_topology.port_assignment import natural
from railwright_topology.wiring import Trunk, Uplink, Wiring


def of(wiring: Wiring, layers: Layers) -> tuple[str, ...]:
    """All faults: miscabled, missing, slow and thin cables, and switches that reach no host."""
    names = {switch.id: switch.name for switch in wiring.switches}
    lost = sorted(names.keys() - layers.tiers.keys())
    found = (
        _misplugged(layers, names),
        _missing_uplinks(wiring.uplinks, layers),
        _missing_slots(layers),
        _slow(wiring.uplinks),
        _stray(layers, names),
        itertools.chain(_no_way_up(wiring, layers, names), _thin(wiring, layers, names)),
    )
    unreached = (f"switch {names[switch]} reaches no host" for switch in lost)
    return (*(fault for its in found for fault in sorted(its, key=natural)), *unreached)


def _misplugged(layers: Layers, names: Mapping[str, str]) -> Iterator[str]:
    for uplink, expected in layers.ports.odd.items():
        yield (
            f"{uplink.host} {uplink.nic} is plugged into {names[uplink.switch]}, "
            f"and those of the hosts beside it into {names[expected]}"
        )
    for uplink in layers.ports.sound:
        if (tier := layers.tiers[uplink.switch]) > 1:
            at = names[uplink.switch]
            yield f"{uplink.host} {uplink.nic} is plugged into {at}, a switch of tier {tier}"


def _missing_uplinks(uplinks: Iterable[Uplink], layers: Layers) -> Iterator[str]:
    there = {(uplink.host, uplink.nic) for uplink in uplinks}
    for host in sorted(layers.ports.kinds, key=natural):
        for nic in layers.ports.kinds[host]:
            if (host, nic) not in there:
                yield f"{host} has no cable at {nic}, where those of its kind have one"


def _missing_slots(layers: Layers) -> Iterator[str]:
    """Adapters that all hosts of a kind lack and that a more frequent, larger kind has: all cables
    of a ToR are missing."""
    hosts = group((kind, host) for host, kind in layers.ports.kinds.items())
    counts = {kind: len(its) for kind, its in hosts.items()}
    for kind, its in sorted(hosts.items()):
        if lacked := [nic for nic in port_assignment.whole(kind, counts) if nic not in kind]:
            lacking = ", ".join(lacked)
            first = min(its, key=natural)
            yield (
                f"hosts without a cable at {lacking}, where most with the same adapters have one: "
                f"{len(its)}, the first is {first}"
            )


def _stray(layers: Layers, names: Mapping[str, str]) -> Iterator[str]:
    for trunk in layers.stray:
        one, other = (names[end] for end in trunk.ends)
        yield f"{one} has a cable to {other}, where none of those like either has one"


def _slow(uplinks: Iterable[Uplink]) -> Iterator[str]:
    """Cables slower than most on their switch; a group of an older generation is no fault."""
    for its in group((up.switch, up) for up in uplinks if up.bytes_per_s).values():
        usual = _usual(uplink.bytes_per_s for uplink in its)
        for uplink in its:
            if uplink.bytes_per_s < usual:
                runs, most = speeds.text(uplink.bytes_per_s), speeds.text(usual)
                yield f"{uplink.host} {uplink.nic} runs at {runs}, most beside it at {most}"


def _no_way_up(wiring: Wiring, layers: Layers, names: Mapping[str, str]) -> Iterator[str]:
    """Switches below the top tier of their network, without an uplink."""
    above = {low for low, _, _ in layers.upward(_sound(wiring, layers))}
    wired = nx.Graph([trunk.ends for trunk in _sound(wiring, layers)])
    for part in map(sorted, nx.connected_components(wired)):
        tiers = {switch: layers.tiers.get(switch, 0) for switch in part}
        top = max(tiers.values())
        for switch, tier in tiers.items():
            if switch not in above and 0 < tier < top:
                yield f"{names[switch]} has no cable upwards, and is of tier {tier} of {top}"


def _thin(wiring: Wiring, layers: Layers, names: Mapping[str, str]) -> Iterator[str]:
    """Missing or thin uplinks, compared with switches that have the same uplinks."""
    above: dict[str, collections.Counter[str]] = {}
    for low, high, bytes_per_s in layers.upward(_sound(wiring, layers)):
        above.setdefault(low, collections.Counter())[high] += bytes_per_s
    equivalent = peers(above)
    for switch, to in sorted(above.items()):
        beside = [above[peer] for peer in equivalent[switch]]
        having = collections.Counter(high for each in beside for high in each)
        for high in sorted(having):
            if high not in to and 2 * having[high] > len(beside):
                yield f"{names[switch]} has no cable to {names[high]}, where those like it have one"
        usual = _usual(speed for each in (to, *beside) for speed in each.values())
        for high in sorted(to):
            if to[high] < usual:
                has, should = speeds.text(to[high]), speeds.text(usual)
                yield f"{names[switch]} reaches {names[high]} with {has}, such pairs have {should}"


def _sound(wiring: Wiring, layers: Layers) -> list[Trunk]:
    return [trunk for trunk in wiring.trunks if trunk not in layers.stray]


def _usual(found: Iterable[int]) -> int:
    """The most frequent value; of equally frequent ones the largest; 0 without values."""
    counts = collections.Counter(found)
    return max(counts, key=lambda speed: (counts[speed], speed), default=0)
