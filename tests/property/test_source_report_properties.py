"""Accounts of one site agree, in whatever form it is written, and in whatever order."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from random import Random

import yaml
from hypothesis import given
from hypothesis import strategies as st

from railwright_topology.source_reports import SourceReport
from railwright_topology.sources import hostlist, labels, plan, slurm, topograph

Grouping = set[frozenset[str]]
Site = dict[str, tuple[str, str]]
"""Nodes with their block and their rack in it."""

OCI = "oci.oraclecloud.com/"
PAIRS = {
    "railwright": ("railwright.dev/block", "railwright.dev/rack"),
    "topograph": ("fabric.topograph.run/tier-1", "fabric.topograph.run/tier-0"),
    "topograph before 1.0": (
        "network.topology.nvidia.com/spine",
        "network.topology.nvidia.com/block",
    ),
    "aws": ("topology.k8s.aws/network-node-layer-2", "topology.k8s.aws/network-node-layer-3"),
    "gcp": ("cloud.google.com/gce-topology-block", "cloud.google.com/gce-topology-subblock"),
    "oci rdma": (f"{OCI}rdma.network_block_id", f"{OCI}rdma.local_block_id"),
    "oci host": (f"{OCI}host.network_block_id", f"{OCI}host.rack_id"),
    "cloud.provider.com": ("cloud.provider.com/topology-block", "cloud.provider.com/topology-rack"),
    "configured": ("example.com/row", "example.com/shelf"),
}

SITES = st.dictionaries(
    st.integers(0, 30).map("node-{}".format),
    st.tuples(st.sampled_from(("b1", "b2", "x3e4f1a2b3c4d5e6f")), st.sampled_from(("r1", "r2"))),
    min_size=1,
    max_size=12,
)
NUMBERS = st.tuples(st.integers(0, 99), st.integers(0, 5), st.integers(1, 4)).map(
    lambda drawn: (f"{drawn[0]:0{drawn[2]}}", drawn[0] + drawn[1])
)
PARTS = st.one_of(
    st.text("ab-.", min_size=1, max_size=3), st.lists(NUMBERS, min_size=1, max_size=2)
)
EXPRESSIONS = st.lists(st.lists(PARTS, min_size=1, max_size=3), max_size=3)
TREES = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 3)), min_size=1, max_size=6)
"""For each switch the number of one before it that it is below, and how many nodes it has."""


def grouping(tier: Mapping[str, str]) -> Grouping:
    return {
        frozenset(node for node, domain in tier.items() if domain == one) for one in tier.values()
    }


def groupings(source_report: SourceReport) -> list[Grouping]:
    return [grouping(tier) for tier in source_report.tiers]


@given(EXPRESSIONS)
def test_a_host_list_stands_for_what_a_naive_reader_finds(
    expressions: list[list[str | list[tuple[str, int]]]],
) -> None:
    stated, expected = [], []
    for parts in expressions:
        stated.append("")
        choices: list[list[str]] = []
        for part in parts:
            if isinstance(part, str):
                stated[-1] += part
                choices.append([part])
                continue
            stated[-1] += "[" + ",".join(f"{first}-{last}" for first, last in part) + "]"
            spans = [(first, range(int(first), last + 1)) for first, last in part]
            choices.append([str(n).zfill(len(first)) for first, span in spans for n in span])
        expected += ["".join(name) for name in itertools.product(*choices)]
    assert hostlist.expand(",".join(stated), 10**6) == expected


@given(SITES)
def test_one_site_has_the_same_groups_in_each_family_of_labels(site: Site) -> None:
    expected = [grouping({node: "/".join(path) for node, path in site.items()})]
    expected.append(grouping({node: path[0] for node, path in site.items()}))
    for family, keys in PAIRS.items():
        nodes = {node: dict(zip(keys, path, strict=True)) for node, path in site.items()}
        (found,) = labels.source_reports(nodes, PAIRS["configured"])
        assert found.source == f"{family} labels"
        assert groupings(found) == expected


@given(SITES, st.data())
def test_missing_labels_split_no_domain_and_join_no_nodes(site: Site, data: st.DataObject) -> None:
    keys = PAIRS["railwright"]
    lacking = st.sets(st.tuples(st.sampled_from(sorted(site)), st.sampled_from(keys)))
    missing = data.draw(lacking)
    nodes = {
        node: {
            key: name for key, name in zip(keys, path, strict=True) if (node, key) not in missing
        }
        for node, path in site.items()
    }
    for found in labels.source_reports(nodes):
        for tier in found.tiers:
            assert all(nodes[node] for node in tier)
        for lower, upper in itertools.pairwise(found.tiers):
            above = {(domain, upper.get(node)) for node, domain in lower.items()}
            assert len(above) == len({*lower.values()})
        for one, other in itertools.combinations(site, 2):
            whole = all(len(nodes[node]) == 2 for node in (one, other))
            if whole:
                together = found.tiers[0][one] == found.tiers[0][other]
                assert together == (site[one] == site[other])


@given(SITES, st.randoms(use_true_random=False))
def test_the_order_of_nodes_and_labels_changes_nothing(site: Site, random: Random) -> None:
    nodes = {
        node: {key: name for keys in PAIRS.values() for key, name in zip(keys, path, strict=True)}
        for node, path in site.items()
    }
    shuffled = {
        node: dict(random.sample(list(nodes[node].items()), len(nodes[node])))
        for node in random.sample(list(nodes), len(nodes))
    }
    one, other = labels.source_reports(nodes), labels.source_reports(shuffled)
    assert one == other
    assert [list(tier) for each in one for tier in each.tiers] == [
        list(tier) for each in other for tier in each.tiers
    ]


@given(SITES)
def test_a_plan_has_the_groups_that_it_was_written_from(site: Site) -> None:
    domains: dict[str, dict[str, str]] = {}
    for node, (block, rack) in site.items():
        racks = domains.setdefault(block, {})
        racks[rack] = f"{racks[rack]},{node}" if rack in racks else node
    text = yaml.safe_dump({"version": 1, "tiers": ["block", "rack"], "domains": domains})
    assert groupings(plan.parse(text)) == [
        grouping({node: "/".join(path) for node, path in site.items()}),
        grouping({node: path[0] for node, path in site.items()}),
    ]


def written(tree: Sequence[tuple[int, int]]) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Who is above each switch that has one above it, and the nodes of each that has none below."""
    parents = {f"s{at}": f"s{one % at}" for at, (one, _) in enumerate(tree) if at}
    inner = {*parents.values()}
    leaves = {
        f"s{at}": [f"n{at}-{each}" for each in range(many)]
        for at, (_, many) in enumerate(tree)
        if f"s{at}" not in inner
    }
    leaves[f"s{len(tree) - 1}"].append("last")
    return parents, leaves


def way(switch: str, parents: Mapping[str, str]) -> list[str]:
    return [switch, *way(parents[switch], parents)] if switch in parents else [switch]


@given(TREES)
def test_nodes_meet_at_height_of_nearest_common_switch(
    tree: list[tuple[int, int]],
) -> None:
    parents, leaves = written(tree)
    used = {leaf: nodes for leaf, nodes in leaves.items() if nodes}
    ways = {node: way(leaf, parents) for leaf, nodes in used.items() for node in nodes}
    (source_report,) = slurm.parse_conf(conf(parents, leaves))
    found = source_report.tiers
    for one, other in itertools.combinations(ways, 2):
        nearest = next(switch for switch in ways[one] if switch in ways[other])
        height = max(its.index(nearest) for its in ways.values() if nearest in its)
        together = [tier[one] == tier[other] for tier in found]
        assert together == [at >= height for at in range(len(found))]


@given(TREES, st.randoms(use_true_random=False))
def test_one_tree_is_the_same_in_every_form_and_order(
    tree: list[tuple[int, int]], random: Random
) -> None:
    parents, leaves = written(tree)
    lines = conf(parents, leaves).splitlines()
    (source_report,) = slurm.parse_conf("\n".join(lines))
    (shuffled,) = slurm.parse_conf("\n".join(random.sample(lines, len(lines))))
    expected = source_report.tiers
    assert shuffled.tiers == expected
    below: dict[str, list[str]] = {}
    for child, above in parents.items():
        below.setdefault(above, []).append(child)
    switches = [{"switch": name, "children": ",".join(its)} for name, its in below.items()]
    switches += [{"switch": name, "nodes": ",".join(its)} for name, its in leaves.items() if its]
    switches += [{"switch": name} for name, its in leaves.items() if not its]
    (found,) = slurm.parse_yaml(json.dumps([{"topology": "t", "tree": {"switches": switches}}]))
    assert found.tiers == expected
    used = {name: its for name, its in leaves.items() if its}
    blocks = [{"switch": name, "nodes": its} for name, its in used.items()]
    named = {name: {"switches": below.get(name, [])} for name in (*below, *leaves)}
    model = topograph.parse_model(json.dumps({"switches": named, "blocks": blocks}))
    assert model.tiers == expected
    instances = [
        {"id": node, "network_layers": way(name, parents)}
        for name, its in random.sample(list(used.items()), len(used))
        for node in its
    ]
    assert topograph.parse_graph(json.dumps({"instances": instances})).tiers == expected


def conf(parents: Mapping[str, str], leaves: Mapping[str, list[str]]) -> str:
    below: dict[str, list[str]] = {}
    for child, above in parents.items():
        below.setdefault(above, []).append(child)
    lines = [f"SwitchName={name} Switches={','.join(its)}" for name, its in below.items()]
    lines += [
        f"SwitchName={name} Nodes={','.join(its)}" if its else f"SwitchName={name}"
        for name, its in leaves.items()
    ]
    return "\n".join(lines)
