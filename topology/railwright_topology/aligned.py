"""Whose rails lead where they should: each adapter of a node to the switches of its own rail, where
those of the nodes beside it lead, so that the ranks of one number have one rail on all nodes.

Nobody says how it was meant: a node is held against its kind, and a switch is of the rail that most
adapters plugged into it are of. Hosts that lack adapters of a larger kind should have those that
one broken thing can have taken from them: a cable, or the switch that they all were plugged into.
What else they lack is how they were built.
"""

from __future__ import annotations

import collections
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from railwright_topology import plugs
from railwright_topology.astray import Astray, Rails
from railwright_topology.layers import Layers
from railwright_topology.parts import Part
from railwright_topology.plugs import Kind, natural
from railwright_topology.wiring import Uplink, Wiring

OFTEN = 2
"""So many times as frequent must a larger kind be, for hosts that stand beside none of it to have
lost a switch."""

_NO_CABLE = "it has no cable"
_ABSENT = "it is not there, and on a rail in others of the node's kind"


@dataclass(frozen=True, slots=True)
class Led:
    """What is said of one node: the rail of each adapter that it should have, in the adapters'
    order, and which are astray. ``parts`` are its adapters as they are seen from inside, and those
    that it should have as others do."""

    rails: Mapping[str, int]
    astray: tuple[Astray, ...] = ()
    parts: tuple[Part, ...] = ()

    @property
    def whole(self) -> Rails:
        """It without the names of those that lead where they should."""
        return Rails(tuple(self.rails.values()), tuple(sorted(self.astray, key=_order)))


def by_cables(wiring: Wiring, layers: Layers) -> dict[str, Led]:
    """What cables say of each host; nothing of one that is on no rails."""
    there = {(uplink.host, uplink.nic): uplink for uplink in wiring.uplinks}
    why = _Why(layers, {switch.id: switch.name for switch in wiring.switches}, _of_switches(layers))
    lost = dict(_lost(wiring, layers))
    found: dict[str, Led] = {}
    for host, kind in sorted(layers.plugs.kinds.items()):
        known = _numbers(layers, kind, kind) | lost.get(host, {})
        rails = {nic: known[nic] for nic in sorted(known, key=natural)}
        told = {nic: why.astray(there.get((host, nic)), rail) for nic, rail in rails.items()}
        if rails:
            found[host] = Led(rails, _astray(rails, told))
    return found


def _numbers(layers: Layers, kind: Kind, nics: Iterable[str]) -> dict[str, int]:
    """The rails of those of a kind's adapters that are on any."""
    known = ((nic, layers.rails.get((kind, nic))) for nic in nics)
    return {nic: rail for nic, rail in known if rail is not None}


def _lost(wiring: Wiring, layers: Layers) -> Iterator[tuple[str, dict[str, int]]]:
    """Of hosts that lack adapters of a larger kind those that one broken thing can have taken from
    them, with their rails."""
    kinds = layers.plugs.kinds
    counts = collections.Counter(kinds.values())
    larger = {kind: plugs.whole(kind, counts) for kind in counts}
    if all(kind == whole for kind, whole in larger.items()):
        return
    cabled: dict[str, set[str]] = {}
    for uplink in wiring.uplinks:
        cabled.setdefault(uplink.host, set()).add(uplink.nic)
    has = {host: frozenset(nics) for host, nics in cabled.items()}
    switches: dict[str, list[str]] = {}
    plugged: dict[str, dict[frozenset[str], set[str]]] = {}
    for uplink in layers.plugs.sound:
        switches.setdefault(uplink.host, []).append(uplink.switch)
        at = plugged.setdefault(uplink.switch, {})
        at.setdefault(has[uplink.host], set()).add(uplink.host)
    for host, kind in kinds.items():
        whole = larger[kind]
        lacked = _numbers(layers, whole, (nic for nic in whole if nic not in kind))
        if not lacked:
            continue
        beside = [
            {its: len(hosts) for its, hosts in plugged[switch].items() if its <= {*whole}}
            for switch in switches[host]
        ]
        there = {
            nic for nic in lacked if _half(_lacking(at, nic) < sum(at.values()) for at in beside)
        }
        # A broken transceiver can be that of two hosts, if it is all that they lack.
        few = 2 if len(lacked) == 1 else 1
        lost = {nic for nic in there if _half(_lacking(at, nic) <= few for at in beside)}
        gone = {nic: rail for nic, rail in lacked.items() if nic not in there}
        used = {*_numbers(layers, kind, kind).values()}
        if _one_switch(gone, used) and counts[whole] >= OFTEN * counts[kind]:
            lost |= gone.keys()
        yield host, {nic: lacked[nic] for nic in lost}


def _half(of_each: Iterable[bool]) -> bool:
    """Whether half of them or more are so."""
    found = [*of_each]
    return 2 * sum(found) >= len(found)


def _lacking(at: Mapping[frozenset[str], int], nic: str) -> int:
    """How many hosts on a switch lack an adapter."""
    return sum(count for nics, count in at.items() if nic not in nics)


def _one_switch(gone: Mapping[str, int], used: Collection[int]) -> bool:
    """Whether these adapters were all plugged into one switch, and nothing else of their hosts."""
    return len({*gone.values()}) == 1 and not {*gone.values()}.intersection(used)


def _astray(rails: Mapping[str, int], told: Mapping[str, str]) -> tuple[Astray, ...]:
    """``rails`` has the rail of each adapter, and ``told`` why it is astray if it is."""
    return tuple(Astray(rails[adapter], adapter, why) for adapter, why in told.items() if why)


def _order(astray: Astray) -> tuple[object, ...]:
    return astray.rail, natural(astray.adapter)


def _of_switches(layers: Layers) -> dict[str, int]:
    """The rail of each switch; of equally many the first."""
    counts: dict[str, collections.Counter[int]] = {}
    for uplink in layers.plugs.sound:
        rail = layers.rail(uplink)
        if rail is not None and layers.tiers[uplink.switch] == 1:
            counts.setdefault(uplink.switch, collections.Counter())[rail] += 1
    return {switch: min(its, key=lambda rail: (-its[rail], rail)) for switch, its in counts.items()}


@dataclass(frozen=True, slots=True)
class _Why:
    """Why adapters are astray, by the names of switches and the rails that these are of."""

    layers: Layers
    names: Mapping[str, str]
    rails: Mapping[str, int]

    def astray(self, uplink: Uplink | None, rail: int) -> str:
        """Why this one is, which should be on this rail; empty if it leads where it should."""
        if uplink is None:
            return _NO_CABLE
        at = f"it is plugged into {self.names[uplink.switch]}"
        if beside := self.layers.plugs.odd.get(uplink):
            return f"{at}, and those beside it into {self.names[beside]}"
        if (tier := self.layers.tiers[uplink.switch]) > 1:
            return f"{at}, a switch of tier {tier}"
        its = self.rails[uplink.switch]
        return "" if its == rail else f"{at}, which is of rail {its}"


def by_adapters(adapters: Mapping[str, Sequence[tuple[int | None, Part]]]) -> dict[str, Led]:
    """What the insides of nodes say, of each its adapters, with their rails if they are on any. A
    cable that is down on most of a kind is how it was meant."""
    called = {
        node: {_called(part): (rail, part) for rail, part in its if rail is not None}
        for node, its in adapters.items()
    }
    ordered = {node: tuple(sorted(its, key=natural)) for node, its in called.items()}
    kinds = plugs.usual(ordered)
    whole = {kind: called[node] for node, kind in ordered.items()}
    numbers = _usual_numbers((ordered[node], its) for node, its in called.items())
    down = _down_as_a_rule((kinds[node], its) for node, its in called.items())
    found: dict[str, Led] = {}
    for node, its in sorted(called.items()):
        kind = kinds[node]
        used = {name: rail for name, rail in numbers[kind].items() if name not in down[kind]}
        told = {name: _dead(its[name][1] if name in its else None) for name in used}
        own = (part for _, part in adapters[node])
        parts = (*own, *(whole[kind][name][1] for name in used if name not in its))
        found[node] = Led(used, _astray(used, told), parts)
    return found


def _usual_numbers(
    nodes: Iterable[tuple[Kind, Mapping[str, tuple[int, Part]]]],
) -> dict[Kind, dict[str, int]]:
    """Of each kind its adapters with the rails that they are of on most nodes that have them all;
    of what is equally frequent the smallest."""
    counts: dict[Kind, collections.Counter[tuple[int, ...]]] = {}
    for kind, its in nodes:
        numbers = tuple(its[name][0] for name in kind)
        counts.setdefault(kind, collections.Counter())[numbers] += 1
    found: dict[Kind, dict[str, int]] = {}
    for kind, ways in counts.items():
        _, usual = min((-count, numbers) for numbers, count in ways.items())
        found[kind] = dict(zip(kind, usual, strict=True))
    return found


def _called(part: Part) -> str:
    return part.names[0] if part.names else part.id


def _dead(part: Part | None) -> str:
    if part is None:
        return _ABSENT
    return "its cable is down" if part.up is False else ""


def _down_as_a_rule(
    nodes: Iterable[tuple[Kind, Mapping[str, tuple[int, Part]]]],
) -> dict[Kind, set[str]]:
    """Of each kind the adapters that are down on more than half of its nodes."""
    counts: dict[Kind, collections.Counter[str]] = {}
    having: collections.Counter[Kind] = collections.Counter()
    for kind, its in nodes:
        having[kind] += 1
        dead = (name for name, (_, part) in its.items() if part.up is False)
        counts.setdefault(kind, collections.Counter()).update(dead)
    return {
        kind: {name for name, count in its.items() if 2 * count > having[kind]}
        for kind, its in counts.items()
    }


def together(cables: Led | None, adapters: Led | None) -> Rails | None:
    """What both say of one node: an adapter is astray if it is by either, on the rail that it has
    by its cables."""
    if cables is None:
        return adapters.whole if adapters is not None and adapters.rails else None
    if adapters is None or not (cables.astray or adapters.astray):
        return cables.whole
    names = {name: _called(part) for part in adapters.parts for name in part.names or (part.id,)}
    nics = {names[nic]: nic for nic in cables.rails if nic in names}
    rails, astray = _seen(cables, adapters, names) if nics else ({**cables.rails}, [*cables.astray])
    known = {names.get(each.adapter) for each in astray}
    # One that both have by names of their own is the same if it is on the same rail.
    same = tuple(rails.values()) == adapters.whole.order
    unnamed = [each.rail for each in astray if same and each.adapter not in names]
    for each in adapters.astray:
        nic = nics.get(each.adapter)
        if nic is None and each.rail in unnamed:
            unnamed.remove(each.rail)
        elif nic is None:
            astray.append(each)
            rails |= {each.adapter: each.rail} if nics else {}
        elif each.adapter not in known:
            astray.append(replace(each, rail=rails[nic]))
    ordered = {nic: rails[nic] for nic in sorted(rails, key=natural)}
    return Led(ordered, tuple(astray)).whole


def _seen(
    cables: Led, adapters: Led, names: Mapping[str, str]
) -> tuple[dict[str, int], list[Astray]]:
    """What cables say, less what they miss of adapters that are not there."""
    absent = {each.adapter for each in adapters.astray if each.why == _ABSENT}
    missed = {each.adapter for each in cables.astray if each.why == _NO_CABLE}
    strange = missed - names.keys()
    untrue = {nic for nic in missed if nic in strange or names[nic] in absent}
    rails = {nic: rail for nic, rail in cables.rails.items() if nic not in strange}
    return rails, [each for each in cables.astray if each.adapter not in untrue]
