"""Merge all sources into one value: the topology, each node's domains, hardware and relative speed,
and the conflicts between sources. `railwright_operator.discovery` and the command line call it.

Sources name hosts by their host names, and a cluster may name its nodes otherwise: host ``gpu-1``
is node ``gpu-1.example.com`` if no other node or host has that first name. Ambiguous hosts are left
out with a remark.
"""

from __future__ import annotations

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
from railwright_topology.interconnect import UNKNOWN, Interconnect
from railwright_topology.links import Links
from railwright_topology.miscabling import Rails
from railwright_topology.networks import Network
from railwright_topology.parts import (
    CPU,
    AdapterRole,
    Benchmarks,
    HardwareReport,
    HardwareReports,
    Part,
)
from railwright_topology.relative_speed import EVEN, RelativeSpeed
from railwright_topology.slow_devices import Measured, Slow
from railwright_topology.source_reports import SCALE_UP, SourceReport
from railwright_topology.topology_merge import MergedTopology

Value = TypeVar("Value")

Facts = SourceReport | Network | HardwareReports
"""What one source reports: the domains of nodes, their cables, or their hardware."""


@dataclass(frozen=True, slots=True)
class Fabric(Interconnect):
    """The interconnect of a cluster, its nodes, and all that these were derived from. ``rails`` has
    the nodes with known rails, ``relative_speeds`` those with slow devices or miscabled rails.

    ``inventories`` are merged from ``hardware_reports``, by node. ``remarks`` list hosts that are
    no nodes of the cluster, and what sources of hardware left out.

    ``benchmarks`` has the nodes with benchmarked devices, ``benchmark_conflicts`` those where a
    second source differs, and ``slow`` the devices that are slower than most of their kind.
    ``fact_sources`` are the names of the sources that report the hardware, the benchmarks or the
    cables of a node.
    """

    rails: Mapping[str, Rails] = field(default_factory=dict)
    relative_speeds: Mapping[str, RelativeSpeed] = field(default_factory=dict)
    merged_topology: MergedTopology = field(default_factory=lambda: topology_merge.of(()))
    source_reports: tuple[SourceReport, ...] = ()
    networks: tuple[Network, ...] = ()
    inventories: Mapping[str, HardwareInventory] = field(default_factory=dict)
    hardware_reports: Mapping[str, tuple[HardwareReport, ...]] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    benchmarks: Mapping[str, Benchmarks] = field(default_factory=dict)
    benchmark_conflicts: Mapping[str, tuple[HardwareConflict, ...]] = field(default_factory=dict)
    slow: tuple[Slow, ...] = ()
    fact_sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def inner_conflicts(self) -> Iterator[tuple[str, HardwareConflict]]:
        """Conflicts on the hardware of nodes, each with its node."""
        for node, its in self.inventories.items():
            yield from ((node, conflict) for conflict in its.conflicts)
        for node, conflicts in self.benchmark_conflicts.items():
            yield from ((node, conflict) for conflict in conflicts)


def of(nodes: Collection[str], facts: Iterable[Facts], before: Fabric | None = None) -> Fabric:
    """Merge all facts about these nodes. Pure; the result depends neither on the order of either
    nor on the fabric ``before``, of which derived values are reused where facts did not change."""
    everything, before = tuple(facts), before or Fabric()
    hardware_reports, remarks = _hardware_reports(
        [each for each in everything if isinstance(each, HardwareReports)], nodes
    )
    inventories = _inventories(hardware_reports, before)
    benchmarks, benchmark_conflicts = slow_devices.settled(_benchmarks(everything, nodes))
    slow = _slow(benchmarks, _accelerated(inventories, benchmarks), before)
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
        levels=tuple(tier.name for tier in coarsest_first),
        places={
            node: tuple(tier.domains.get(node, UNKNOWN) for tier in coarsest_first)
            for node in sorted(nodes)
        },
        links=_links(merged, reports, wired, nodes)[::-1],
        rails=rails,
        relative_speeds=_relative_speeds(slow_devices.of(slow), rails),
        merged_topology=merged,
        source_reports=reports,
        networks=tuple(sorted(wired, key=lambda network: network.wiring.source)),
        inventories=inventories,
        hardware_reports=hardware_reports,
        remarks=remarks,
        benchmarks=benchmarks,
        benchmark_conflicts=benchmark_conflicts,
        slow=slow,
        fact_sources=_fact_sources(everything, nodes),
    )


def _fact_sources(facts: Iterable[Facts], nodes: Collection[str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, set[str]] = {}
    for each in facts:
        if isinstance(each, SourceReport):
            continue
        if isinstance(each, Network):
            source, hosts = each.wiring.source, frozenset(each.assignments)
        else:
            source, hosts = each.source, each.nodes
        for node in _called(hosts, nodes).values():
            found.setdefault(node, set()).add(source)
    return {node: tuple(sorted(its)) for node, its in sorted(found.items())}


def _hardware_reports(
    facts: Iterable[HardwareReports], nodes: Collection[str]
) -> tuple[dict[str, tuple[HardwareReport, ...]], tuple[str, ...]]:
    """The reports of each node, by its name in the cluster; remarks on hosts that are no nodes, and
    on what a source left out."""
    found: dict[str, list[HardwareReport]] = {}
    remarks: list[str] = []
    for each in facts:
        called = _called(each.nodes, nodes)
        for host, hardware_reports in each.by_host.items():
            if host in called:
                found.setdefault(called[host], []).extend(hardware_reports)
        its_remarks = (*_unknown_hosts(each.nodes, called), *each.remarks)
        remarks += (f"{each.source}: {remark}" for remark in its_remarks)
    ordered = {
        node: tuple(sorted(its, key=lambda report: report.source))
        for node, its in sorted(found.items())
    }
    return ordered, tuple(sorted(remarks))


def _unknown_hosts(hosts: Collection[str], called: Mapping[str, str]) -> tuple[str, ...]:
    """A remark on hosts that are no nodes of the cluster, if any."""
    others = sorted({*hosts} - called.keys())
    count = f"{len(others)} of {len(hosts)}"
    return (f"no node of the cluster: {count}, the first is {others[0]}",) if others else ()


def _benchmarks(facts: Iterable[Facts], nodes: Collection[str]) -> dict[str, list[Measured]]:
    """The benchmarks of each source, by the node's name in the cluster."""
    measured = [each for each in facts if isinstance(each, HardwareReports) and each.benchmarks]
    called = [_called(each.nodes, nodes) for each in measured]
    return group(
        (names[host], (each.source, its))
        for each, names in zip(measured, called, strict=True)
        for host, its in each.benchmarks.items()
        if host in names
    )


def _slow(
    benchmarks: Mapping[str, Benchmarks], accelerated: set[str], before: Fabric
) -> tuple[Slow, ...]:
    had = _accelerated(before.inventories, before.benchmarks)
    if benchmarks == before.benchmarks and accelerated == had:
        return before.slow
    return slow_devices.slow(benchmarks, accelerated)


def _accelerated(
    inventories: Mapping[str, HardwareInventory],
    benchmarks: Mapping[str, Benchmarks],
) -> set[str]:
    """The nodes with accelerators, benchmarked or not."""
    seen = {node for node, its in inventories.items() if its.accelerators}
    return seen.union(node for node, its in benchmarks.items() if any(r.device != CPU for r in its))


def _relative_speeds(
    measured: Mapping[str, RelativeSpeed], rails: Mapping[str, Rails]
) -> dict[str, RelativeSpeed]:
    """Add the share of correctly cabled rails."""
    shares = {node: its.share for node, its in rails.items() if its.miscabled}
    return {
        node: replace(measured.get(node, EVEN), rails=shares.get(node, EVEN.rails))
        for node in sorted({*measured, *shares})
    }


def _inventories(
    hardware_reports: Mapping[str, tuple[HardwareReport, ...]], before: Fabric
) -> dict[str, HardwareInventory]:
    """Merge reports by node. Equal nodes mostly share their reports, which are merged once."""
    merged = {_same(its): before.inventories[node] for node, its in before.hardware_reports.items()}
    found: dict[str, HardwareInventory] = {}
    for node, its in hardware_reports.items():
        which = _same(its)
        if which not in merged:
            merged[which] = hardware_inventory.of(its)
        found[node] = merged[which]
    return found


def _same(hardware_reports: tuple[HardwareReport, ...]) -> tuple[int, ...]:
    return tuple(map(id, hardware_reports))


def _front_end(inventories: Mapping[str, HardwareInventory]) -> set[Nic]:
    return {
        (node, name)
        for node, its in inventories.items()
        for part in its.of_role(AdapterRole.FRONT_END)
        for name in part.names
    }


def _rails_alone(
    network: Network, front: Collection[Nic], nodes: Collection[str], before: Fabric
) -> Network:
    """Remove front-end adapters, unless there are no others: a front-end network shows domains
    too."""
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
    """The rails of each node, by cables and by hardware; the network with the most adapters of the
    node counts."""
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
    """The adapters that may be rails, each with its rail if known."""
    placed = ((its.placed[part.id], part) for part in its.adapters)
    return tuple((at.rail, part) for at, part in placed if at.role != AdapterRole.FRONT_END)


def _links(
    merged: MergedTopology,
    reports: Iterable[SourceReport],
    networks: Iterable[Network],
    nodes: Collection[str],
) -> tuple[Links, ...]:
    """The links of each tier, the nearest first: of each domain by the most trusted source, and
    ratios by the network with the most cables. Scale-up domains have no network cables of their
    own: they have the oversubscription of the tier inside."""
    called = [tier.name for tier in merged.tiers]
    tiers = [tier.domains for tier in merged.tiers if tier.name != SCALE_UP]
    leaving: list[dict[str, float]] = [{} for _ in tiers]
    for report in sorted(reports, key=lambda each: (each.provenance, each.capacity, each.source)):
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
        narrowing, sums = network.narrowing(), network.reducing_domains()
        for its, tier in topology_merge.matched(tiers, theirs).items():
            ratios[tier] = narrowing.get(its + 1, ratios[tier])
            reducing[tier] |= _reducing(tiers[tier], theirs[its], sums[its])
    never_less = itertools.accumulate(ratios, max)
    links = [*map(Links, never_less, leaving, reducing)]
    if SCALE_UP in called:
        at = called.index(SCALE_UP)
        links.insert(at, Links(links[at - 1].oversubscription if at else 1.0))
    return tuple(links)


def _ratio(domains: Mapping[str, str], capacities: Mapping[str, float]) -> float:
    """Number of nodes over how many can send out of their domains at once, where that is known."""
    within = sum(domain in capacities for domain in domains.values())
    return max(1.0, within / sum(capacities.values())) if capacities else 1.0


def _reducing(
    ours: Mapping[str, str], theirs: Mapping[str, str], sums: frozenset[str]
) -> frozenset[str]:
    """The domains that lie within one domain of a source with in-network reduction."""
    called = group((domain, theirs.get(node, UNKNOWN)) for node, domain in ours.items())
    return frozenset(
        domain for domain, names in called.items() if len({*names}) == 1 and names[0] in sums
    )


def short(domain: str, above: str) -> str:
    """A domain's name without the prefix of the domain around it, for display."""
    return domain.removeprefix(f"{above}/") or domain


def _apart(reports: Iterable[SourceReport]) -> tuple[SourceReport, ...]:
    """Number sources of the same name by their content, independent of their order."""
    found: list[SourceReport] = []
    for name, its in sorted(group((report.source, report) for report in reports).items()):
        if len(its) > 1:
            its.sort(key=_content)
        found += its[:1]
        found += (replace(each, source=f"{name} ({at})") for at, each in enumerate(its[1:], 2))
    return tuple(sorted(found, key=lambda report: report.order))


def _content(report: SourceReport) -> str:
    """All of a report as a text that can be sorted."""
    domains = [sorted(each.items()) for each in (*report.tiers, report.scale_up_domains)]
    return repr((report.provenance, report.capacity, domains, report.names, report.strange))


def _of_the_cluster(report: SourceReport, nodes: Collection[str]) -> SourceReport:
    """A source's report with the node names of the cluster."""
    hosts = report.nodes
    if hosts <= {*nodes}:
        return report
    called = _called(hosts, nodes)

    def renamed(values: Mapping[str, Value]) -> dict[str, Value]:
        return {called[host]: its for host, its in values.items() if host in called}

    return replace(
        report,
        tiers=tuple(map(renamed, report.tiers)),
        scale_up_domains=renamed(report.scale_up_domains),
        times=renamed(report.times),
        strange=report.strange + _unknown_hosts(hosts, called),
    )


def _called(hosts: Collection[str], nodes: Collection[str]) -> dict[str, str]:
    """The node of each host: the node of its name, or, where one of both names is a bare first name
    (never an address), the node of that first name, if it is unique among hosts and among nodes."""
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
