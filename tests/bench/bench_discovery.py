"""What is found of networks that are known: told in every form, cabled, and told wrongly.

Each source tells of the same uneven sites, under scrambled names; ``correct`` is the share of
(node, tier) whose company is as it was planted, or of the facts inside of a node. A three-layer
Clos of eight rails is cabled in ibsim and looked at by the real ibnetdiscover. Then labels and a
plan of that Clos are falsified, and descriptions of machines; each falsehood must be told as a
conflict, and nothing else. Last, agents in network namespaces behind shaped links probe each other:
``probe_ari`` is the adjusted Rand index of what they find, worst of the tiers.
"""

from __future__ import annotations

import json
import math
import random
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from bench import bars, machine_fixtures, site_fixtures
from bench.site_fixtures import Site
from fixtures import infiniband, shaped_network
from fixtures.clos import Clos, netfile
from fixtures.planted_network import adjusted_rand_index
from fixtures.shaped_network import Speeds
from railwright_testbed import requirements
from railwright_topology import fabric, networks
from railwright_topology.fabric import Facts
from railwright_topology.networks import Network
from railwright_topology.sources import formats, ibnetdiscover, labels
from railwright_topology.sources.formats import File

ROUNDS = 20
MACHINES = 60
CLOS = Clos(blocks=2, groups=4, hosts=16, rails=8, leaves=2, spines=4)
FALSE = 5
"""Nodes that a source has elsewhere, of 128."""
BLOCKS = ((5, 7, 6), (4, 8, 6))
"""Nodes in each rack of each block, in namespaces."""
SPEEDS = Speeds(node=160, rack=50, block=15)


AT_LEAST = {
    "worst_source_correct": 1.0,
    "clos_rails_correct": 1.0,
    "probe_nodes": 32,
    "probe_ari": 0.95,
}
AT_MOST = {"conflicts_invented": 0, "probe_fraction_of_pairs": 0.2}


def main() -> int:
    sources: dict[str, dict[str, float]] = {}
    for number in range(ROUNDS):
        site = site_fixtures.planted(random.Random(number))
        for name, part, reported in site_fixtures.read_sources(site):
            correct = _correct(part, reported)
            held = sources.setdefault(name, {"nodes": 0, "correct": 1.0})
            held["nodes"] += len(part.paths)
            held["correct"] = min(held["correct"], correct)
    for name, nodes, correct in machine_fixtures.score_sources(MACHINES):
        sources[name] = {"nodes": nodes, "correct": correct}
    _log(f"{len(sources)} sources, {ROUNDS} sites, {MACHINES} machines")
    network, hosts, rails = _cabled()
    sources["ibnetdiscover.txt"] = {
        "nodes": len(hosts),
        "correct": _correct(_clos_site(), [network]),
    }
    _log(f"{len(hosts)} hosts cabled")
    both = _falsified(network, sorted(hosts)), machine_fixtures.falsified(MACHINES)
    planted, found, invented = map(sum, zip(*both, strict=True))
    nodes, ari, fraction = _probed()
    figures = {
        "sources": sources,
        "worst_source_correct": min(each["correct"] for each in sources.values()),
        "clos_hosts": len(hosts),
        "clos_rails_correct": rails,
        "conflicts_planted": planted,
        "conflicts_found": found,
        "conflicts_invented": invented,
        "probe_nodes": nodes,
        "probe_ari": round(ari, 4),
        "probe_fraction_of_pairs": round(fraction, 4),
    }
    whole = {"conflicts_found": "conflicts_planted"}
    return bars.publish(figures, whole=whole, at_most=AT_MOST, at_least=AT_LEAST)


def _correct(site: Site, reported: Iterable[Facts]) -> float:
    """The share of (node, tier) with the company that was planted; worst of the tiers."""
    found = site_fixtures.groups(fabric.of(site.paths.keys(), reported).places)
    if len(found) != len(site.groups):
        return 0.0
    return min(
        sum(len(group) for group in planted & seen) / len(site.paths)
        for planted, seen in zip(site.groups, found, strict=True)
    )


def _clos_site() -> Site:
    return Site(
        {
            host: ("spine", f"block-{block}", f"group-{block}-{group}")
            for block in range(CLOS.blocks)
            for group in range(CLOS.groups)
            for host in CLOS.group(block, group)
        }
    )


def _cabled() -> tuple[Network, set[str], float]:
    """The Clos as the real tool sees it, its hosts, and the share of adapters on their rail."""
    requirements.install(requirements.SIMULATED_NETWORKS)
    cables = list(CLOS.cables())
    random.Random(0).shuffle(cables)
    with tempfile.TemporaryDirectory() as folder:
        text = infiniband.discovered(netfile(cables), Path(folder))
    network = networks.of(ibnetdiscover.parse(text))
    uplinks = network.wiring.uplinks
    right = sum(network.layers.rail(up) == int(up.nic.removeprefix("mlx5_")) for up in uplinks)
    return network, {up.host for up in uplinks}, right / (128 * 8)


def _falsified(network: Network, hosts: list[str]) -> tuple[int, int, int]:
    """Conflicts that were planted into a plan and into labels, found, and invented."""
    planted = found = invented = 0
    truth = {host: path[-1] for host, path in _clos_site().paths.items()}
    groups = sorted({*truth.values()})
    for number in range(ROUNDS):
        rng = random.Random(number)
        wrong = rng.sample(hosts, 2 * FALSE)
        claimed = truth | {
            host: rng.choice([group for group in groups if group != truth[host]]) for host in wrong
        }
        by_plan = truth | {host: claimed[host] for host in wrong[:FALSE]}
        by_labels = truth | {host: claimed[host] for host in wrong[FALSE:]}
        reported: list[Facts] = [network, *_plan(by_plan), *_labels(by_labels)]
        conflicts = fabric.of(hosts, reported).merged_topology.conflicts
        seen = {(conflict.node, conflict.source) for conflict in conflicts}
        expected = {(host, "plan") for host in wrong[:FALSE]}
        expected |= {(host, "railwright labels") for host in wrong[FALSE:]}
        planted += len(expected)
        found += len(seen & expected)
        invented += len(seen - expected)
    return planted, found, invented


def _plan(claimed: Mapping[str, str]) -> tuple[Facts, ...]:
    racks: dict[str, list[str]] = {}
    for host, group in claimed.items():
        racks.setdefault(group, []).append(host)
    domains = {group: ",".join(its) for group, its in racks.items()}
    text = json.dumps({"version": 1, "tiers": ["rack"], "domains": domains})
    return formats.read(File("", "plan.yaml", text))


def _labels(claimed: Mapping[str, str]) -> tuple[Facts, ...]:
    return labels.source_reports(
        {host: {labels.OWN_LEVELS[-1]: group} for host, group in claimed.items()}
    )


def _probed() -> tuple[int, float, float]:
    """How many nodes, how well their tiers are found, and from which part of their pairs."""
    with shaped_network.opened(BLOCKS, SPEEDS) as network, network.listening():
        _log(f"{len(network.paths)} nodes in namespaces, probing each other")
        # One at a time: two that share an uplink would each see half of it.
        text = network.survey("--at-once", "1")
        planted = network.tiers
    for tier in shaped_network.measured(text):
        _log(json.dumps({**tier, "domains": len(tier["domains"])}))
    nodes = [*planted[0]]
    places = fabric.of(nodes, formats.read(File("", "probes.json", text))).places
    seen = [dict(zip(places, tier, strict=True)) for tier in zip(*places.values(), strict=True)]
    indices = [adjusted_rand_index(*both) for both in zip(planted, reversed(seen), strict=False)]
    _log(f"adjusted Rand indices by tier: {indices}")
    fraction = json.loads(text)["pairs"] / math.comb(len(nodes), 2)
    return len(nodes), min(indices) if len(seen) == len(planted) else 0.0, fraction


def _log(text: str) -> None:
    print(f"== {text}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
