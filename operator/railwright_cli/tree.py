"""A fabric in words: its levels, its networks, and the domains as a tree."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from railwright_topology import agreement, inside, outline, paces, speeds
from railwright_topology.accounts import ISLAND
from railwright_topology.fabric import UNKNOWN, Fabric, short
from railwright_topology.folding import fold
from railwright_topology.networks import Network
from railwright_topology.plugs import natural

NOWHERE = "in no known domain"


def lines(fabric: Fabric, ranks: Mapping[str, int]) -> Iterator[str]:
    """All of it; ``ranks`` are the nodes of a job, which are told wherever they stand."""
    yield count(len(fabric.places), "node")
    for level, name in enumerate(fabric.levels):
        sizes = fabric.sizes(fabric.places, level)
        tier = fabric.agreement.tiers[-1 - level]
        others = f"; {count(len(tier.filled), 'node')} by others" if tier.filled else ""
        domains = count(len(sizes), "domain")
        yield f"  {name}: {domains} of {_sizes(sizes.values())} ({tier.source}{others})"
    if (islands := fabric.agreement.islands) and ISLAND not in fabric.levels:
        found = count(len({*islands.domains.values()}), "island")
        yield f"  {found} of device links, {count(len(islands.domains), 'node')} ({islands.source})"
    for network in fabric.networks:
        yield from _network(network)
    yield from _rails(fabric)
    for said, nodes in outline.kinds(fabric.insides):
        yield f"  {fold(nodes)}: {said}"
    yield ""
    yield from _domains(fabric, ranks)


def conflicts(fabric: Fabric) -> Iterator[str]:
    """What sources disagree on."""
    for its in agreement.alike(fabric.agreement.conflicts):
        nodes = fold(conflict.node for conflict in its)
        yield f"{nodes}: {agreement.told(its[0])} ({its[0].level})"
    for source, name in fabric.agreement.unmatched:
        fits = f"{name} is not used: it fits between none of the tiers of sources before {source}"
        yield fits if name != ISLAND else f"{agreement.CROSSING}, by {source}"


def inner_findings(fabric: Fabric) -> Iterator[str]:
    """What sources of one node disagree on, what they show that nobody can use, and what nobody
    says; that of many nodes once."""
    alike: dict[str, list[str]] = {}
    for node, conflict in fabric.inner_conflicts():
        alike.setdefault(inside.told(conflict), []).append(node)
    for node, its in fabric.insides.items():
        for each in (*its.remarks, *(f"nobody says {what}" for what in its.unknown)):
            alike.setdefault(each, []).append(node)
    for each, nodes in sorted(alike.items()):
        yield f"{fold(nodes)}: {each}"
    yield from fabric.strangers


def slow(fabric: Fabric) -> Iterator[str]:
    """Devices that are slower than most of their kind, the slowest first."""
    yield from (f"{each.node}: {paces.told(each)}" for each in fabric.slow)


def count(number: int, what: str) -> str:
    """So many of something."""
    plural = "es" if what.endswith("ch") else "s"
    return f"{number:,} {what}{plural if number != 1 else ''}"


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
        yield f"    {count(adapters, 'adapter')} at {speeds.told(speed) if speed else 'no speed'}"


def _rails(fabric: Fabric) -> Iterator[str]:
    """How many nodes have theirs aligned, and what is astray on others; that of many nodes once."""
    if not fabric.rails:
        return
    sound = sum(not rails.astray for rails in fabric.rails.values())
    yield f"  rails: aligned on {sound:,} of {count(len(fabric.rails), 'node')}"
    alike: dict[str, list[str]] = {}
    for node, its in fabric.rails.items():
        for each in its.astray:
            alike.setdefault(each.told, []).append(node)
    yield from (f"    {fold(nodes)}: {said}" for said, nodes in alike.items())


def in_order(fabric: Fabric) -> list[str]:
    """The nodes of each domain together, as people count; those of none come last."""
    return sorted(fabric.places, key=lambda node: (*_steps(fabric.place(node)), natural(node)))


def _steps(place: Iterable[str]) -> Iterator[tuple[bool, object]]:
    return ((domain == UNKNOWN, natural(domain)) for domain in place)


def _domains(fabric: Fabric, ranks: Mapping[str, int]) -> Iterator[str]:
    """Nodes of no known domain stand where the domain would."""

    def below(nodes: list[str], level: int, lead: str, above: str) -> Iterator[str]:
        nowhere = "on no island" if fabric.levels[level] == ISLAND else NOWHERE
        inside: dict[str, list[str]] = {}
        for node in nodes:
            inside.setdefault(fabric.place(node)[level], []).append(node)
        last = [*inside][-1] if inside else UNKNOWN
        for domain, its in inside.items():
            branch, inner = ("└─ ", "   ") if domain == last else ("├─ ", "│  ")
            if not level:
                branch = inner = ""
            where = f"in {short(domain, above)}" if domain != UNKNOWN else nowhere
            yield f"{lead}{branch}{_domain(where, its, ranks)}"
            if any(any(fabric.place(node)[level + 1 :]) for node in its):
                yield from below(its, level + 1, lead + inner, domain)

    nodes = in_order(fabric)
    yield from below(nodes, 0, "", "") if fabric.levels else [_domain(NOWHERE, nodes, ranks)]


def _domain(where: str, nodes: list[str], ranks: Mapping[str, int]) -> str:
    line = f"{count(len(nodes), 'node')} {fold(nodes)} {where}"
    mine = [str(ranks[node]) for node in nodes if node in ranks]
    return f"{line}, node ranks {fold(mine)}" if mine else line
