"""The fabric as one value: what all sources say together, where each node stands by that, what is
inside of each, how fast that is, and what they disagree on.

Sources call hosts what they call themselves, and clusters call nodes what they were joined as: a
host ``gpu-1`` is the node ``gpu-1.example.com``, where no other has that first name. What cannot be
told apart that way is left out and told.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from railwright_topology import (
    aligned,
    front_end,
    hardware_inventory,
    networks,
    slow_devices,
    topology_merge,
)
from railwright_topology.aligned import RailAssignment
from railwright_topology.front_end import Nic
from railwright_topology.grouping import group
from railwright_topology.hardware_inventory import HardwareConflict, HardwareInventory
from railwright_topology.links import Links
from railwright_topology.miscabling import Rails
from railwright_topology.networks import Network
from railwright_topology.parts import (
    CPU,
    DeviceBenchmark,
    HardwareReport,
    HardwareReports,
    Part,
    Role,
)
from railwright_topology.relative_speed import EVEN, RelativeSpeed
from railwright_topology.slow_devices import Slow
from railwright_topology.source_reports import ISLAND, SourceReport
from railwright_topology.topology_merge import MergedTopology

UNKNOWN = ""
Said = TypeVar("Said")

Told = SourceReport | Network | HardwareReports
"""What a source says: where nodes stand, how they are wired, or what is inside of them."""


@dataclass(frozen=True, slots=True)
class Fabric:
    """``levels`` runs from the coarsest to the finest, and so does what ``places`` has of each
    node: its domains, each of a name that no other of its level has, UNKNOWN where nobody says.
    ``links`` has what is known of each level's; oversubscription is no less than further in.

    ``inventories`` are of the nodes that somebody has looked into, by ``hardware_reports``.
    ``strangers`` says of
    which hosts, that are no nodes of the cluster, somebody has, and what sources of insides left
    out. ``rails`` are of the nodes whose
    rails are known.

    ``rates`` are of the nodes whose devices somebody measured, ``rate_conflicts`` of those where
    another measured others, ``slow`` the devices that are slower than most of their kind, and
    ``relative_speeds`` of the nodes that are so, or whose rails are astray.
    """

    levels: tuple[str, ...] = ()
    places: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    merged_topology: MergedTopology = field(default_factory=lambda: topology_merge.of(()))
    source_reports: tuple[SourceReport, ...] = ()
    networks: tuple[Network, ...] = ()
    links: tuple[Links, ...] = ()
    inventories: Mapping[str, HardwareInventory] = field(default_factory=dict)
    hardware_reports: Mapping[str, tuple[HardwareReport, ...]] = field(default_factory=dict)
    strangers: tuple[str, ...] = ()
    rails: Mapping[str, Rails] = field(default_factory=dict)
    rates: Mapping[str, tuple[DeviceBenchmark, ...]] = field(default_factory=dict)
    rate_conflicts: Mapping[str, tuple[HardwareConflict, ...]] = field(default_factory=dict)
    slow: tuple[Slow, ...] = ()
    relative_speeds: Mapping[str, RelativeSpeed] = field(default_factory=dict)

    @property
    def nearest(self) -> int:
        """The finest level of the network, which islands are none of; -1 if there is none."""
        found = [level for level, name in enumerate(self.levels) if name != ISLAND]
        return max(found, default=-1)

    def place(self, node: str) -> tuple[str, ...]:
        """The node's domain at each level; nowhere known if nobody says anything of it."""
        return self.places.get(node) or (UNKNOWN,) * len(self.levels)

    def sizes(self, nodes: Iterable[str], level: int) -> collections.Counter[str]:
        """The known domains of a level that these nodes stand in, and how many of them in each."""
        domains = (self.place(node)[level] for node in nodes)
        return collections.Counter(domain for domain in domains if domain != UNKNOWN)

    def inner_conflicts(self) -> Iterator[tuple[str, HardwareConflict]]:
        """What sources disagree on inside of nodes, each after its node."""
        for node, its in self.inventories.items():
            yield from ((node, conflict) for conflict in its.conflicts)
        for node, conflicts in self.rate_conflicts.items():
            yield from ((node, conflict) for conflict in conflicts)


def of(nodes: Collection[str], facts: Iterable[Told], before: Fabric | None = None) -> Fabric:
    """Put together what is told of these nodes. Pure, and the same for any order of either, and
    for any fabric before: of that, what is derived from what did not change is taken over."""
    everything, before = tuple(facts), before or Fabric()
    hardware_reports, strangers = _looks(
        [each for each in everything if isinstance(each, HardwareReports)], nodes
    )
    inventories = _insides(hardware_reports, before)
    rates, rate_conflicts = slow_devices.settled(_rates(everything, nodes))
    slow = _slow(rates, _accelerated(inventories, rates), before)
    front = _front_end(inventories)
    found = (each for each in everything if isinstance(each, Network))
    wired = [_rails_alone(each, front, nodes, before) for each in found]
    sources = [each for each in everything if isinstance(each, SourceReport)]
    sources += (network.source_report for network in wired)
    reports = _apart([_of_the_cluster(report, nodes) for report in sources])
    merged = topology_merge.of(reports)
    coarsest_first = merged.tiers[::-1]
    rails = _rails(wired, inventories, nodes)
    return Fabric(
        tuple(tier.name for tier in coarsest_first),
        {
            node: tuple(tier.domains.get(node, UNKNOWN) for tier in coarsest_first)
            for node in sorted(nodes)
        },
        merged,
        reports,
        tuple(sorted(wired, key=lambda network: network.wiring.source)),
        _links(merged, reports, wired, nodes)[::-1],
        inventories,
        hardware_reports,
        strangers,
        rails,
        rates,
        rate_conflicts,
        slow,
        _relative_speeds(slow_devices.of(slow), rails),
    )


def _looks(
    facts: Iterable[HardwareReports], nodes: Collection[str]
) -> tuple[dict[str, tuple[HardwareReport, ...]], tuple[str, ...]]:
    """The reports of each node, by the name that it has in the cluster; which hosts are no nodes,
    and what was left out of a source."""
    found: dict[str, list[HardwareReport]] = {}
    strangers: list[str] = []
    for each in facts:
        called = _called(each.nodes, nodes)
        for host, hardware_reports in each.by_host.items():
            if host in called:
                found.setdefault(called[host], []).extend(hardware_reports)
        remarks = (*_strangers(each.nodes, called), *each.remarks)
        strangers += (f"{each.source}: {remark}" for remark in remarks)
    ordered = {
        node: tuple(sorted(its, key=lambda look: look.source))
        for node, its in sorted(found.items())
    }
    return ordered, tuple(sorted(strangers))


def _strangers(hosts: Collection[str], called: Mapping[str, str]) -> tuple[str, ...]:
    """A remark on the hosts that are no nodes of the cluster, if there are any."""
    others = sorted({*hosts} - called.keys())
    count = f"{len(others)} of {len(hosts)}"
    return (f"no node of the cluster: {count}, the first is {others[0]}",) if others else ()


def _rates(facts: Iterable[Told], nodes: Collection[str]) -> dict[str, list[slow_devices.Measured]]:
    """What each source measured of each node, by the name that it has in the cluster."""
    measured = [each for each in facts if isinstance(each, HardwareReports) and each.rates]
    called = [_called(each.nodes, nodes) for each in measured]
    return group(
        (names[host], (each.source, its))
        for each, names in zip(measured, called, strict=True)
        for host, its in each.rates.items()
        if host in names
    )


def _slow(
    rates: Mapping[str, tuple[DeviceBenchmark, ...]], accelerated: set[str], before: Fabric
) -> tuple[Slow, ...]:
    if rates == before.rates and accelerated == _accelerated(before.inventories, before.rates):
        return before.slow
    return slow_devices.slow(rates, accelerated)


def _accelerated(
    inventories: Mapping[str, HardwareInventory], rates: Mapping[str, tuple[DeviceBenchmark, ...]]
) -> set[str]:
    """The nodes that have accelerators, whether those were measured or not."""
    seen = {node for node, its in inventories.items() if its.accelerators}
    return seen.union(node for node, its in rates.items() if any(r.device != CPU for r in its))


def _relative_speeds(
    measured: Mapping[str, RelativeSpeed], rails: Mapping[str, Rails]
) -> dict[str, RelativeSpeed]:
    """The same with the rails that lead where they should."""
    shares = {node: its.share for node, its in rails.items() if its.miscabled}
    return {
        node: replace(measured.get(node, EVEN), rails=shares.get(node, EVEN.rails))
        for node in sorted({*measured, *shares})
    }


def _insides(
    hardware_reports: Mapping[str, tuple[HardwareReport, ...]], before: Fabric
) -> dict[str, HardwareInventory]:
    """Equal nodes are mostly told by the same values: what they come to is found out once."""
    known = {_same(its): before.inventories[node] for node, its in before.hardware_reports.items()}
    found: dict[str, HardwareInventory] = {}
    for node, its in hardware_reports.items():
        which = _same(its)
        if which not in known:
            known[which] = hardware_inventory.of(its)
        found[node] = known[which]
    return found


def _same(hardware_reports: tuple[HardwareReport, ...]) -> tuple[int, ...]:
    return tuple(map(id, hardware_reports))


def _front_end(inventories: Mapping[str, HardwareInventory]) -> set[Nic]:
    return {
        (node, name)
        for node, its in inventories.items()
        for part in its.of_role(Role.FRONT_END)
        for name in part.names
    }


def _rails_alone(
    network: Network, front: Collection[Nic], nodes: Collection[str], before: Fabric
) -> Network:
    """Without the adapters that are known to be no rails, unless it has none but those: who stands
    beside whom can be seen by the front-end network too."""
    wiring = network.wiring
    called = _called({uplink.host for uplink in wiring.uplinks}, nodes) if front else {}
    theirs = {
        (uplink.host, uplink.nic)
        for uplink in wiring.uplinks
        if (called.get(uplink.host, ""), uplink.nic) in front
    }
    left = front_end.without(wiring, theirs)
    if left is wiring or not left.uplinks:
        return network
    same = next((each for each in before.networks if each.wiring == left), None)
    return same or networks.of(left)


def _rails(
    wired: Iterable[Network], inventories: Mapping[str, HardwareInventory], nodes: Collection[str]
) -> dict[str, Rails]:
    """Of each node, by cables and by what is inside of it; of several networks that with the most
    adapters counts."""
    by_cables: dict[str, RailAssignment] = {}
    for network in wired:
        for host, node in _called(network.assignments, nodes).items():
            its, other = network.assignments[host], by_cables.get(node)
            if other is None or (len(other.rails), repr(other)) < (len(its.rails), repr(its)):
                by_cables[node] = its
    adapters = {node: _numbered(its) for node, its in inventories.items()}
    by_adapters = aligned.by_adapters(adapters)
    both = {
        node: aligned.together(by_cables.get(node), by_adapters.get(node))
        for node in sorted(by_cables.keys() | by_adapters.keys())
    }
    return {node: rails for node, rails in both.items() if rails is not None}


def _numbered(its: HardwareInventory) -> tuple[tuple[int | None, Part], ...]:
    """The adapters that are not known to be no rails, each with its own if it is one."""
    placed = ((its.placed[part.id], part) for part in its.adapters)
    return tuple((at.rail, part) for at, part in placed if at.role != Role.FRONT_END)


def _links(
    merged: MergedTopology,
    reports: Iterable[SourceReport],
    networks: Iterable[Network],
    nodes: Collection[str],
) -> tuple[Links, ...]:
    """Of each tier, the nearest first: by what the most trusted source says of each domain's own
    links, and by the network with the most cables. Islands have no cables of their own: as many
    leave them as leave what lies in them."""
    called = [tier.name for tier in merged.tiers]
    tiers = [tier.domains for tier in merged.tiers if tier.name != ISLAND]
    leaving: list[dict[str, float]] = [{} for _ in tiers]
    for report in sorted(reports, key=lambda each: (each.basis, each.capacity, each.source)):
        capacities = report.leaving
        same = topology_merge.matched(tiers, report.tiers) if any(capacities) else {}
        for its, tier in same.items():
            names = topology_merge.counterparts(report.tiers[its], tiers[tier])
            leaving[tier] |= {
                names[name]: capacity
                for name, capacity in sorted(capacities[its].items())
                if name in names
            }
    ratios = [_ratio(its, capacities) for its, capacities in zip(tiers, leaving, strict=True)]
    reducing: list[frozenset[str]] = [frozenset()] * len(tiers)
    for network in sorted(
        networks, key=lambda each: (each.source_report.capacity, each.wiring.source)
    ):
        theirs = _of_the_cluster(network.source_report, nodes).tiers
        narrowing, sums = network.narrowing(), network.summing()
        for its, tier in topology_merge.matched(tiers, theirs).items():
            ratios[tier] = narrowing.get(its + 1, ratios[tier])
            reducing[tier] |= _reducing(tiers[tier], theirs[its], sums[its])
    never_less = itertools.accumulate(ratios, max)
    links = [*map(Links, never_less, leaving, reducing)]
    if ISLAND in called:
        at = called.index(ISLAND)
        links.insert(at, Links(links[at - 1].oversubscription if at else 1.0))
    return tuple(links)


def _ratio(domains: Mapping[str, str], capacities: Mapping[str, float]) -> float:
    """Nodes over how many of them can leave their domains, of those that something is known of."""
    within = sum(domain in capacities for domain in domains.values())
    return max(1.0, within / sum(capacities.values())) if capacities else 1.0


def _reducing(
    ours: Mapping[str, str], theirs: Mapping[str, str], sums: frozenset[str]
) -> frozenset[str]:
    """The domains of which all nodes stand in one that a source has, and that one sums up."""
    called = group((domain, theirs.get(node, UNKNOWN)) for node, domain in ours.items())
    return frozenset(
        domain for domain, names in called.items() if len({*names}) == 1 and names[0] in sums
    )


def short(domain: str, above: str) -> str:
    """A domain's name inside another, for people: a source that knows it by its whole path repeats
    the other's."""
    return domain.removeprefix(f"{above}/") or domain


def _apart(reports: Iterable[SourceReport]) -> tuple[SourceReport, ...]:
    """Sources of one name are numbered, by what they say and not by the order that they came in."""
    found: list[SourceReport] = []
    for name, its in sorted(group((report.source, report) for report in reports).items()):
        if len(its) > 1:
            its.sort(key=_content)
        found += its[:1]
        found += (replace(each, source=f"{name} ({at})") for at, each in enumerate(its[1:], 2))
    return tuple(sorted(found, key=lambda each: (-each.basis, -each.capacity, each.source)))


def _content(report: SourceReport) -> str:
    """All that it says, in words that can be put in order."""
    domains = [sorted(each.items()) for each in (*report.tiers, report.islands)]
    return repr((report.basis, report.capacity, domains, report.names, report.strange))


def _of_the_cluster(report: SourceReport, nodes: Collection[str]) -> SourceReport:
    """What an account says of nodes, by the names that they have in the cluster."""
    hosts = report.nodes
    if hosts <= {*nodes}:
        return report
    called = _called(hosts, nodes)

    def renamed(values: Mapping[str, Said]) -> dict[str, Said]:
        return {called[host]: its for host, its in values.items() if host in called}

    return replace(
        report,
        tiers=tuple(map(renamed, report.tiers)),
        islands=renamed(report.islands),
        times=renamed(report.times),
        strange=report.strange + _strangers(hosts, called),
    )


def _called(hosts: Collection[str], nodes: Collection[str]) -> dict[str, str]:
    """The node of each host: of its name, or where one of both is a first name alone (no address is
    one), of that name, if no other host and no other node has it."""
    exact = {host: host for host in hosts if host in nodes}
    by_first = group((node.partition(".")[0], node) for node in nodes if node not in exact)
    left = group((host.partition(".")[0], host) for host in hosts if host not in exact)
    return exact | {
        same[0]: there[0]
        for first, same in left.items()
        if len(same) == 1 == len(there := by_first.get(first, []))
        and first in (same[0], there[0])
        and not first.isdigit()
    }
