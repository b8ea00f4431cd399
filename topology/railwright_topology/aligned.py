"""Find each node's rail assignment, and the adapters that are miscabled: plugged into a switch of
another rail than the same adapters of other nodes. `fabric` calls it, by cables and by hardware.

The intended cabling is unknown, so a node is compared with its kind, and a switch is of the rail of
most adapters plugged into it. A host that lacks adapters of a larger kind has lost those that one
broken part explains: a cable, or the one switch that they were all plugged into. The others were
never there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from railwright_topology import port_assignment
from railwright_topology.grouping import group, most_frequent
from railwright_topology.layers import Layers
from railwright_topology.miscabling import MiscabledRail, Rails
from railwright_topology.parts import Part
from railwright_topology.port_assignment import Kind, natural
from railwright_topology.wiring import Uplink, Wiring

OFTEN = 2
"""A larger kind must be so many times as frequent for hosts that share no switch with it to count
as having lost a switch."""

_NO_CABLE = "it has no cable"
_ABSENT = "it is not there, and on a rail in others of the node's kind"


@dataclass(frozen=True, slots=True)
class RailAssignment:
    """Of one node: the rail of each adapter that it should have, in the adapters' order, and which
    are miscabled. ``parts`` are its adapters by its hardware reports, and those that it should have
    as others do."""

    rails: Mapping[str, int]
    miscabled: tuple[MiscabledRail, ...] = ()
    parts: tuple[Part, ...] = ()

    @property
    def whole(self) -> Rails:
        """The rails without the names of correctly cabled adapters."""
        miscabled = sorted(self.miscabled, key=lambda its: (its.rail, natural(its.adapter)))
        return Rails(tuple(self.rails.values()), tuple(miscabled))


def _assignment(
    rails: Mapping[str, int], reasons: Iterable[tuple[str, str]], parts: Iterable[Part] = ()
) -> RailAssignment:
    """``reasons`` has, for each adapter, why it is miscabled; empty if it is not."""
    miscabled = (MiscabledRail(rails[adapter], adapter, why) for adapter, why in reasons if why)
    return RailAssignment(rails, tuple(miscabled), tuple(parts))


def by_cables(wiring: Wiring, layers: Layers) -> dict[str, RailAssignment]:
    """The assignment of each host by its cables; none of a host without rails."""
    there = {(uplink.host, uplink.nic): uplink for uplink in wiring.uplinks}
    why = _Why(layers, {switch.id: switch.name for switch in wiring.switches}, _of_switches(layers))
    lost = dict(_lost(wiring, layers))
    found: dict[str, RailAssignment] = {}
    for host, kind in sorted(layers.ports.kinds.items()):
        numbered = _numbers(layers, kind, kind) | lost.get(host, {})
        rails = {nic: numbered[nic] for nic in sorted(numbered, key=natural)}
        if rails:
            reasons = [(nic, why.of(there.get((host, nic)), rail)) for nic, rail in rails.items()]
            found[host] = _assignment(rails, reasons)
    return found


def _numbers(layers: Layers, kind: Kind, nics: Iterable[str]) -> dict[str, int]:
    """The rails of those of a kind's adapters that are on any."""
    numbered = ((nic, layers.rails.get((kind, nic))) for nic in nics)
    return {nic: rail for nic, rail in numbered if rail is not None}


def _lost(wiring: Wiring, layers: Layers) -> Iterator[tuple[str, dict[str, int]]]:
    """Of hosts that lack adapters of a larger kind those that one broken part can have taken from
    them, with their rails."""
    kinds = layers.ports.kinds
    counts = Counter(kinds.values())
    larger = {kind: port_assignment.whole(kind, counts) for kind in counts}
    lacked = {
        kind: _numbers(layers, whole, (nic for nic in whole if nic not in kind))
        for kind, whole in larger.items()
    }
    beside = _beside(wiring.uplinks, layers.ports.sound) if any(lacked.values()) else {}
    for host, kind in kinds.items():
        if its := lacked[kind]:
            whole = larger[kind]
            lost, gone = _lost_beside(its, whole, beside[host])
            used = _numbers(layers, kind, kind).values()
            # They may all have been plugged into one switch, and nothing else of their hosts.
            rails = {its[nic] for nic in gone}
            if len(rails) == 1 and rails.isdisjoint(used) and counts[whole] >= OFTEN * counts[kind]:
                lost |= gone
            yield host, {nic: its[nic] for nic in lost}


def _beside(
    uplinks: Iterable[Uplink], sound: Iterable[Uplink]
) -> dict[str, list[Counter[frozenset[str]]]]:
    """Of each host its switches, each as how many hosts on it have which adapters."""
    cabled = group((uplink.host, uplink.nic) for uplink in uplinks)
    has = {host: frozenset(nics) for host, nics in cabled.items()}
    hosts = group((uplink.switch, uplink.host) for uplink in sound)
    plugged = {at: Counter(has[host] for host in dict.fromkeys(its)) for at, its in hosts.items()}
    return group((uplink.host, plugged[uplink.switch]) for uplink in sound)


def _lost_beside(
    lacked: Collection[str], whole: Kind, switches: Iterable[Counter[frozenset[str]]]
) -> tuple[set[str], set[str]]:
    """Of adapters that a host of this larger kind lacks those that most hosts on its switches have,
    and which are thus lost, and those that hardly any host there has."""
    beside = [
        Counter({nics: count for nics, count in at.items() if nics <= {*whole}}) for at in switches
    ]
    there = {nic for nic in lacked if _half(_lacking(at, nic) < at.total() for at in beside)}
    # A broken transceiver can be that of two hosts, if it is all that they lack.
    few = 2 if len(lacked) == 1 else 1
    lost = {nic for nic in there if _half(_lacking(at, nic) <= few for at in beside)}
    return lost, {*lacked} - there


def _half(of_each: Iterable[bool]) -> bool:
    """Whether at least half of them are true."""
    found = [*of_each]
    return 2 * sum(found) >= len(found)


def _lacking(at: Mapping[frozenset[str], int], nic: str) -> int:
    """How many hosts on a switch lack an adapter."""
    return sum(count for nics, count in at.items() if nic not in nics)


def _of_switches(layers: Layers) -> dict[str, int]:
    """The rail of each switch; of equally many the first."""
    return most_frequent(
        (uplink.switch, rail)
        for uplink in layers.ports.sound
        if (rail := layers.rail(uplink)) is not None and layers.tiers[uplink.switch] == 1
    )


@dataclass(frozen=True, slots=True)
class _Why:
    """The reasons of miscabled adapters, by names and rails of switches."""

    layers: Layers
    names: Mapping[str, str]
    rails: Mapping[str, int]

    def of(self, uplink: Uplink | None, rail: int) -> str:
        """Why this adapter, which should be on this rail, is miscabled; empty if it is not."""
        if uplink is None:
            return _NO_CABLE
        at = f"it is plugged into {self.names[uplink.switch]}"
        if beside := self.layers.ports.odd.get(uplink):
            return f"{at}, and those beside it into {self.names[beside]}"
        if (tier := self.layers.tiers[uplink.switch]) > 1:
            return f"{at}, a switch of tier {tier}"
        its = self.rails[uplink.switch]
        return "" if its == rail else f"{at}, which is of rail {its}"


def by_adapters(
    adapters: Mapping[str, Sequence[tuple[int | None, Part]]],
) -> dict[str, RailAssignment]:
    """The assignment of each node by its adapters, each with its rail if it is on one. A cable
    that is down on most nodes of a kind is how it was meant."""
    called = {
        node: {part.name: (rail, part) for rail, part in its if rail is not None}
        for node, its in adapters.items()
    }
    ordered = {node: tuple(sorted(its, key=natural)) for node, its in called.items()}
    kinds = port_assignment.usual(ordered)
    whole = {kind: called[node] for node, kind in ordered.items()}
    usual = most_frequent(
        (kind, tuple(called[node][name][0] for name in kind)) for node, kind in ordered.items()
    )
    down = _down_as_a_rule(called, kinds)
    found: dict[str, RailAssignment] = {}
    for node, its in sorted(called.items()):
        kind = kinds[node]
        numbers = zip(kind, usual[kind], strict=True)
        rails = {name: rail for name, rail in numbers if (kind, name) not in down}
        absent = [whole[kind][name][1] for name in rails if name not in its]
        seen = (part for _, part in adapters[node])
        reasons = ((name, _dead(its.get(name))) for name in rails)
        found[node] = _assignment(rails, reasons, (*seen, *absent))
    return found


def _down_as_a_rule(
    called: Mapping[str, Mapping[str, tuple[int, Part]]], kinds: Mapping[str, Kind]
) -> set[tuple[Kind, str]]:
    """The adapters of a kind that are down on more than half of its nodes."""
    having = Counter(kinds[node] for node in called)
    down = Counter(
        (kinds[node], name)
        for node, its in called.items()
        for name, (_, part) in its.items()
        if part.up is False
    )
    return {slot for slot, count in down.items() if 2 * count > having[slot[0]]}


def _dead(numbered: tuple[int, Part] | None) -> str:
    if numbered is None:
        return _ABSENT
    return "its cable is down" if numbered[1].up is False else ""


def together(cables: RailAssignment | None, adapters: RailAssignment | None) -> Rails | None:
    """Merge both assignments of one node: an adapter is miscabled if it is by either, on the rail
    that it has by its cables."""
    if cables is None:
        return adapters.whole if adapters is not None and adapters.rails else None
    if adapters is None or not (cables.miscabled or adapters.miscabled):
        return cables.whole
    return _merged(cables, adapters).whole


def _merged(cables: RailAssignment, adapters: RailAssignment) -> RailAssignment:
    names = {name: part.name for part in adapters.parts for name in part.names or (part.id,)}
    nics = {names[nic]: nic for nic in cables.rails if nic in names}
    if nics:
        cables = _seen(cables, adapters, names)
    more = tuple(_only_by_adapters(cables, adapters, names, nics))
    if not nics:
        return RailAssignment(cables.rails, cables.miscabled + more)
    rails = {**cables.rails, **{its.adapter: its.rail for its in more if its.adapter not in nics}}
    ordered = {nic: rails[nic] for nic in sorted(rails, key=natural)}
    return RailAssignment(ordered, cables.miscabled + more)


def _only_by_adapters(
    cables: RailAssignment,
    adapters: RailAssignment,
    names: Mapping[str, str],
    nics: Mapping[str, str],
) -> Iterator[MiscabledRail]:
    """What is miscabled by the hardware reports and not by the cables."""
    numbered = {names.get(each.adapter) for each in cables.miscabled}
    # An adapter with a name of its own in each is the same if it is on the same rail.
    same = tuple(cables.rails.values()) == adapters.whole.order
    unnamed = [each.rail for each in cables.miscabled if same and each.adapter not in names]
    for each in adapters.miscabled:
        nic = nics.get(each.adapter)
        if nic is None and each.rail in unnamed:
            unnamed.remove(each.rail)
        elif nic is None:
            yield each
        elif each.adapter not in numbered:
            yield replace(each, rail=cables.rails[nic])


def _seen(
    cables: RailAssignment, adapters: RailAssignment, names: Mapping[str, str]
) -> RailAssignment:
    """The assignment by cables, less what they miss of adapters that are not there."""
    absent = {each.adapter for each in adapters.miscabled if each.why == _ABSENT}
    missed = {each.adapter for each in cables.miscabled if each.why == _NO_CABLE}
    strange = missed - names.keys()
    untrue = {nic for nic in missed if nic in strange or names[nic] in absent}
    rails = {nic: rail for nic, rail in cables.rails.items() if nic not in strange}
    return RailAssignment(
        rails, tuple(its for its in cables.miscabled if its.adapter not in untrue)
    )
