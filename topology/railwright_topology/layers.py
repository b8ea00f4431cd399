"""Derive tiers of switches, domains of hosts, and rails from a wiring. `networks` calls it.

A tier is a switch's distance from where hosts are plugged in as a rule, which is 1. A domain of
tier k is a set of hosts that reach each other through switches of tier k and below: under one ToR,
or under the eight ToRs of one group where each adapter of a host has its own.

Rails are derived, not assumed: adapters of one name, on hosts of one kind, are of one rail with
others if they share most of their switches. Eight rails show as eight such sets, dual-homed pairs
as four, a ToR a rack as one: then there are no rails. The rails of other kinds of hosts are those
of the most frequent one: the same by switches, by names of adapters, or in the same order.

A cable between switches whose peers have none such is a stray one. Miscabled adapters and stray
cables are ignored. Cables between switches of one tier join nothing at that tier.
"""

from __future__ import annotations

import collections
import itertools
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import networkx as nx

from railwright_topology import port_assignment
from railwright_topology.grouping import group
from railwright_topology.port_assignment import Kind, PortAssignment, natural
from railwright_topology.wiring import Trunk, Uplink, Wiring

FEW = 4
"""A switch with less than a quarter of the hosts that one has as a rule is not where hosts are
plugged in, unless switches wired upwards like it are: a login host on a spine makes no ToR of it.
"""

TIERS_MAX = 6
"""No network has more; a long chain of switches that reach no further hosts is no tier."""

Slot = tuple[Kind, str]
"""An adapter of a kind of host."""


@dataclass(frozen=True, slots=True)
class Domain:
    """Hosts that reach each other below a tier, and their switches of just that tier."""

    tier: int
    hosts: tuple[str, ...]
    switches: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Layers:
    """``tiers`` gives each switch's id its tier; one that reaches no host is in none.

    ``domains[k]`` are those of tier k + 1, up to TIERS_MAX. ``rails`` is empty where there are
    none. ``stray`` are trunks that no peers of their ends have.
    """

    tiers: Mapping[str, int]
    domains: tuple[tuple[Domain, ...], ...]
    rails: Mapping[Slot, int]
    ports: PortAssignment
    stray: tuple[Trunk, ...]

    def rail(self, uplink: Uplink) -> int | None:
        """The rail that this adapter is of, wherever it is plugged in."""
        return self.rails.get((self.ports.kinds[uplink.host], uplink.nic))

    def upward(self, trunks: Iterable[Trunk]) -> Iterator[tuple[str, str, int]]:
        """Of trunks between two tiers, the lower switch, the higher one, and bytes a second."""
        for trunk in trunks:
            low, high = sorted(trunk.ends, key=lambda end: self.tiers.get(end, 0))
            if 0 < self.tiers.get(low, 0) < self.tiers[high]:
                yield low, high, trunk.cables * trunk.bytes_per_s


def of(wiring: Wiring) -> Layers:
    """Derive all layers. Pure; independent of the order of the wiring's parts."""
    found = port_assignment.of(wiring.uplinks)
    stray = _stray(wiring.trunks)
    graph = nx.Graph([trunk.ends for trunk in wiring.trunks if trunk not in stray])
    parts = {switch: at for at, its in enumerate(nx.connected_components(graph)) for switch in its}
    # The only way between two parts of a network is a way all the same.
    graph.add_edges_from(
        trunk.ends
        for trunk in stray
        if parts.get(trunk.ends[0], trunk.ends[0]) != parts.get(trunk.ends[1], trunk.ends[1])
    )
    tiers = _tiers(graph, found.sound)
    rails = _rails([uplink for uplink in found.sound if tiers[uplink.switch] == 1], found)
    top = max(tiers.values(), default=0)
    across = any(tiers.get(one) == top == tiers.get(other) for one, other in graph.edges)
    outermost = min(TIERS_MAX, top + across)
    return Layers(
        tiers=tiers,
        domains=tuple(
            _domains(graph, found.sound, tiers, tier) for tier in range(1, outermost + 1)
        ),
        rails=rails if len({*rails.values()}) > 1 else {},
        ports=found,
        stray=tuple(trunk for trunk in wiring.trunks if trunk in stray),
    )


def _stray(trunks: Iterable[Trunk]) -> set[Trunk]:
    """Trunks to where no switch like either end has one, and like which those have none either: a
    link between each two ToRs of a pair is how it was meant."""
    wired = nx.Graph([trunk.ends for trunk in trunks])
    having = peers(nx.to_dict_of_lists(wired))
    equivalent = {
        switch: [other for other in its if switch in having[other]]
        for switch, its in having.items()
    }

    def alone(end: str, far: str) -> bool:
        others = [other for other in equivalent[end] if other != far]
        return bool(others) and not any(wired.has_edge(far, other) for other in others)

    def found_alone(trunk: Trunk) -> bool:
        # The end with fewer peers is checked first: mostly they have the trunk.
        few, many = sorted(trunk.ends, key=lambda end: len(equivalent[end]))
        return alone(few, many) and alone(many, few)

    found = set(filter(found_alone, trunks))
    ends = {end for trunk in found for end in trunk.ends}
    return {
        trunk
        for trunk in found
        if all(
            2 * sum(other in ends for other in equivalent[end]) <= len(equivalent[end])
            for end in trunk.ends
        )
    }


def peers(neighbours: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """For each switch the others that have more than half of its neighbours."""
    having = group((far, switch) for switch, its in neighbours.items() for far in its)
    found = {}
    for switch, its in neighbours.items():
        shared = collections.Counter(peer for one in its for peer in having[one] if peer != switch)
        most = len({*its})
        found[switch] = sorted(peer for peer, count in shared.items() if 2 * count > most)
    return found


def _tiers(wired: nx.Graph, sound: Iterable[Uplink]) -> dict[str, int]:
    graph = wired.copy()
    hosts = collections.Counter(uplink.switch for uplink in sound)
    graph.add_nodes_from(hosts)
    if not hosts:
        return {}
    usual = statistics.median_low([hosts[switch] for switch in hosts.elements()])
    edge = {switch for switch, count in hosts.items() if FEW * count >= usual}
    equivalent = peers(nx.to_dict_of_lists(graph))
    for switch in hosts.keys() - edge:
        having = hosts.keys() & equivalent[switch]
        if 2 * len(edge & having) > len(having):
            edge.add(switch)
    for part in nx.connected_components(graph):
        if edge.isdisjoint(part):
            edge |= part & hosts.keys()
    layers = nx.bfs_layers(graph, sorted(edge))
    return {switch: tier for tier, layer in enumerate(layers, 1) for switch in sorted(layer)}


def _domains(
    wired: nx.Graph, sound: Iterable[Uplink], tiers: Mapping[str, int], tier: int
) -> tuple[Domain, ...]:
    graph = nx.Graph()
    graph.add_edges_from(
        (("host", up.host), ("switch", up.switch)) for up in sound if tiers[up.switch] <= tier
    )
    for one, other in wired.edges:
        low, high = sorted((tiers.get(one, tier + 1), tiers.get(other, tier + 1)))
        if high <= tier and low < tier:
            graph.add_edge(("switch", one), ("switch", other))
    found = []
    for members in nx.connected_components(graph):
        hosts = sorted((name for kind, name in members if kind == "host"), key=natural)
        switches = (name for kind, name in members if kind == "switch" and tiers[name] == tier)
        if hosts:
            found.append(Domain(tier, tuple(hosts), tuple(sorted(switches))))
    return tuple(sorted(found, key=lambda domain: natural(domain.hosts[0])))


def _rails(sound: Iterable[Uplink], found: PortAssignment) -> dict[Slot, int]:
    """Each kind's rails are numbered as those of the most frequent kind."""
    sets = _sharing(sound, found)
    hosts = collections.Counter(found.kinds.values())
    rails: dict[Slot, int] = {}
    for kind in sorted(hosts, key=lambda kind: (-hosts[kind], kind)):
        own = [slots for slots in sets if kind in dict(slots)]
        own.sort(key=lambda slots: min(natural(nic) for of, nic in slots if of == kind))
        rails = _numbered(own, rails)
    return dict(sorted(rails.items()))


def _numbered(sets: Sequence[set[Slot]], rails: dict[Slot, int]) -> dict[Slot, int]:
    """``rails`` with those of one kind's sets: as more frequent kinds have numbered their slots,
    else by names of adapters, else the smallest number that is free."""
    by_name = {nic: rail for (_, nic), rail in sorted(rails.items(), reverse=True)}
    numbered = [{rails[slot] for slot in slots if slot in rails} for slots in sets]
    used = set[int]().union(*numbered)
    found: dict[Slot, int] = {}
    for slots, its in zip(sets, numbered, strict=True):
        named = {by_name[nic] for _, nic in slots if nic in by_name} - used
        rail = min(its or named or {next(at for at in itertools.count() if at not in used)})
        used.add(rail)
        found |= dict.fromkeys(slots, rail)
    return found | rails


def _sharing(sound: Iterable[Uplink], found: PortAssignment) -> list[set[Slot]]:
    """Two slots are together if they share switches with more than half of the fewer's cables.

    A few plugs in the wrong place, or one storage leaf that both are plugged into, do not join
    them.
    """
    slots = [(uplink.switch, (found.kinds[uplink.host], uplink.nic)) for uplink in sound]
    cables = collections.Counter(slot for _, slot in slots)
    shared: collections.Counter[tuple[Slot, Slot]] = collections.Counter()
    for its in group(slots).values():
        there = collections.Counter(its)
        for one, other in itertools.combinations(sorted(there), 2):
            shared[one, other] += min(there[one], there[other])
    graph = nx.Graph()
    graph.add_nodes_from(cables)
    graph.add_edges_from(
        pair for pair, count in shared.items() if 2 * count > min(cables[slot] for slot in pair)
    )
    return list(nx.connected_components(graph))
