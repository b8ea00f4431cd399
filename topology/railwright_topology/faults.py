"""What is amiss in a fabric's cables, each as a sentence that names the plug to look at.

Nothing is known of how it was meant, so each part is held against those like it: a host against its
kind, a switch against those with the same neighbours.
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
    """All that is found: odd, missing, slow and thin cables, and what reaches no host. What the
    source itself shows and nothing can use stands in its account."""
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
    """Adapters that a whole kind of hosts lacks, and a more frequent kind of the same has: all
    cables of a ToR are gone."""
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
    """Slower than most on the same switch: whole groups of an older generation are no fault."""
    for its in group((up.switch, up) for up in uplinks if up.bytes_per_s).values():
        usual = _usual(uplink.bytes_per_s for uplink in its)
        for uplink in its:
            if uplink.bytes_per_s < usual:
                runs, most = speeds.text(uplink.bytes_per_s), speeds.text(usual)
                yield f"{uplink.host} {uplink.nic} runs at {runs}, most beside it at {most}"


def _no_way_up(wiring: Wiring, layers: Layers, names: Mapping[str, str]) -> Iterator[str]:
    """Switches below the top of what they are wired with, without any cable upwards."""
    above = {low for low, _, _ in layers.upward(_sound(wiring, layers))}
    wired = nx.Graph([trunk.ends for trunk in _sound(wiring, layers)])
    for part in map(sorted, nx.connected_components(wired)):
        tiers = {switch: layers.tiers.get(switch, 0) for switch in part}
        top = max(tiers.values())
        for switch, tier in tiers.items():
            if switch not in above and 0 < tier < top:
                yield f"{names[switch]} has no cable upwards, and is of tier {tier} of {top}"


def _thin(wiring: Wiring, layers: Layers, names: Mapping[str, str]) -> Iterator[str]:
    """Ways up that are missing or thin, held against switches with the same ways up."""
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
    """What most have; of two that are as frequent the larger; 0 of none."""
    counts = collections.Counter(found)
    return max(counts, key=lambda speed: (counts[speed], speed), default=0)
