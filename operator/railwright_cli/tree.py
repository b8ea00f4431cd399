"""Render a fabric as text: its levels, networks and findings, and its domains as a tree."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from rich.tree import Tree

from railwright_cli.amounts import count
from railwright_cli.gang import Gang
from railwright_topology import hardware_inventory, outline, slow_devices, speeds, topology_merge
from railwright_topology.fabric import Fabric, short
from railwright_topology.folding import fold
from railwright_topology.grouping import group
from railwright_topology.interconnect import UNKNOWN
from railwright_topology.networks import Network
from railwright_topology.port_assignment import natural
from railwright_topology.source_reports import SCALE_UP

NOWHERE = "in no known domain"


def summary(fabric: Fabric) -> Iterator[str]:
    """Levels, scale-up domains, networks, rails and hardware, a line each."""
    yield count(len(fabric.places), "node")
    for level, name in enumerate(fabric.levels):
        sizes = fabric.sizes(fabric.places, level)
        tier = fabric.merged_topology.tiers[-1 - level]
        others = f"; {count(len(tier.filled), 'node')} by others" if tier.filled else ""
        domains = count(len(sizes), "domain")
        yield f"  {name}: {domains} of {_sizes(sizes.values())} ({tier.source}{others})"
    if (scale_up := fabric.merged_topology.scale_up_domains) and SCALE_UP not in fabric.levels:
        found = count(len({*scale_up.domains.values()}), "scale-up domain")
        yield f"  {found} of {count(len(scale_up.domains), 'node')} ({scale_up.source})"
    for network in fabric.networks:
        yield from _network(network)
    yield from _rails(fabric)
    for hardware, nodes in outline.kinds(fabric.inventories):
        yield f"  {fold(nodes)}: {hardware}"


def findings(fabric: Fabric) -> Iterator[str]:
    """Conflicts of sources, faults, and what a source has that cannot be used."""
    for its in topology_merge.group_conflicts(fabric.merged_topology.conflicts):
        nodes = fold(conflict.node for conflict in its)
        yield f"{nodes}: {topology_merge.describe(its[0])} ({its[0].level})"
    for source, name in fabric.merged_topology.unmatched:
        fits = f"{name} is not used: it fits between none of the tiers of sources before {source}"
        yield fits if name != SCALE_UP else f"{topology_merge.CROSSING}, by {source}"
    for network in fabric.networks:
        yield from network.faults
    for source_report in fabric.source_reports:
        yield from (f"{source_report.source}: {each}" for each in source_report.strange)
    by_node = [
        (hardware_inventory.describe(conflict), node) for node, conflict in fabric.inner_conflicts()
    ]
    for node, found in fabric.inventories.items():
        by_node += ((each, node) for each in found.remarks)
        by_node += ((f"no source has {what}", node) for what in found.unknown)
    yield from (f"{fold(nodes)}: {each}" for each, nodes in sorted(group(by_node).items()))
    yield from fabric.remarks


def describe_slow_devices(fabric: Fabric) -> Iterator[str]:
    """Devices that are slower than most of their kind, the slowest first."""
    yield from (f"{each.node}: {slow_devices.describe(each)}" for each in fabric.slow)


def in_order(fabric: Fabric) -> list[str]:
    """The nodes of each domain together, as people count; those without a domain come last."""
    return sorted(fabric.places, key=lambda node: (*_steps(fabric.place(node)), natural(node)))


def domains_at(fabric: Fabric, level: int, nodes: Iterable[str]) -> dict[str, list[str]]:
    """These nodes by their domain at a level."""
    return group((fabric.place(node)[level], node) for node in nodes)


def domains(fabric: Fabric, gang: Gang) -> Tree:
    """The domains with their nodes, and the node ranks of a job on them. A node without a domain is
    listed where its domain would be."""

    def add(branch: Tree, where: str, nodes: Sequence[str]) -> Tree:
        mine = [places[node] for node in nodes if node in places]
        its = f", node ranks {gang.node_ranks(mine)}" if mine else ""
        return branch.add(f"{count(len(nodes), 'node')} {fold(nodes)} {where}{its}")

    def grow(branch: Tree, nodes: Sequence[str], level: int, above: str) -> None:
        nowhere = "in no scale-up domain" if fabric.levels[level] == SCALE_UP else NOWHERE
        for domain, its in domains_at(fabric, level, nodes).items():
            where = f"in {short(domain, above)}" if domain != UNKNOWN else nowhere
            inner = add(branch, where, its)
            if any(any(fabric.place(node)[level + 1 :]) for node in its):
                grow(inner, its, level + 1, domain)

    places = gang.places
    root, nodes = Tree("", hide_root=True), in_order(fabric)
    if fabric.levels:
        grow(root, nodes, 0, UNKNOWN)
    else:
        add(root, NOWHERE, nodes)
    return root


def _sizes(sizes: Collection[int]) -> str:
    low, high = min(sizes, default=0), max(sizes, default=0)
    return count(low, "node") if low == high else f"{low:,} to {high:,} nodes"


def _network(network: Network) -> Iterator[str]:
    wiring, layers = network.wiring, network.layers
    rails = count(network.rails, "rail") if network.rails else "no rails"
    yield (
        f"  {wiring.source}: {count(network.hosts, 'host')}, "
        f"{count(len(wiring.uplinks), 'adapter')} on {rails}, "
        f"{count(len(wiring.switches), 'switch')}"
    )
    ratios = network.oversubscription()
    for tier in range(len(layers.domains), 0, -1):
        switches = [switch for switch in wiring.switches if layers.tiers.get(switch.id) == tier]
        line = f"    tier {tier}: {count(len(switches), 'switch')}"
        if tier in ratios:
            line += f", oversubscription {ratios[tier]:.3g} : 1"
        reducing = sum(switch.reduces for switch in switches)
        yield line + (f", {reducing:,} reduce (SHARP)" if reducing else "")
    for speed, adapters in network.speeds().items():
        text = speeds.text(speed) if speed else "no speed"
        yield f"    {count(adapters, 'adapter')} at {text}"


def _rails(fabric: Fabric) -> Iterator[str]:
    """How many nodes have aligned rails, and the miscabled rails of the others."""
    if fabric.rails:
        miscabled = [
            (each.description, node) for node, its in fabric.rails.items() for each in its.miscabled
        ]
        aligned = len(fabric.rails) - len({node for _, node in miscabled})
        yield f"  rails: aligned on {aligned:,} of {count(len(fabric.rails), 'node')}"
        yield from (f"    {fold(nodes)}: {each}" for each, nodes in group(miscabled).items())


def _steps(place: Iterable[str]) -> Iterator[tuple[bool, object]]:
    return ((domain == UNKNOWN, natural(domain)) for domain in place)
