"""Nodes' labels, read family by family. The labels here are written for these tests."""

from __future__ import annotations

import pytest

from railwright_topology.source_reports import Provenance, SourceReport
from railwright_topology.sources import labels

NVIDIA = "network.topology.nvidia.com/"
TIER = "fabric.topograph.run/tier-"
AWS = "topology.k8s.aws/"
CLIQUE = "nvidia.com/gpu.clique"


def only(nodes: dict[str, dict[str, str]], configured: tuple[str, ...] = ()) -> SourceReport:
    (found,) = labels.source_reports(nodes, configured)
    return found


def test_a_rack_is_known_by_its_block_too() -> None:
    found = only(
        {
            f"n{block}{rack}": {
                "railwright.dev/block": f"b{block}",
                "railwright.dev/rack": f"r{rack}",
            }
            for block in (1, 2)
            for rack in (1, 2)
        }
    )
    assert found == SourceReport(
        "railwright labels",
        Provenance.DECLARED,
        (
            {"n11": "b1/r1", "n12": "b1/r2", "n21": "b2/r1", "n22": "b2/r2"},
            {"n11": "b1", "n12": "b1", "n21": "b2", "n22": "b2"},
        ),
        names=("railwright.dev/rack", "railwright.dev/block"),
    )


@pytest.mark.parametrize(
    ("keys", "source"),
    [
        ((f"{TIER}2", f"{TIER}1", f"{TIER}0"), "topograph"),
        ((f"{TIER}10", f"{TIER}9", f"{TIER}2"), "topograph"),
        (tuple(f"{NVIDIA}tier-{tier}" for tier in (10, 1, 0)), "topograph tier"),
        (tuple(f"{NVIDIA}level-{level}" for level in (2, 1, 0)), "topograph level"),
        ((f"{NVIDIA}core", f"{NVIDIA}spine", f"{NVIDIA}leaf"), "topograph before 1.0"),
        ((f"{NVIDIA}datacenter", f"{NVIDIA}spine", f"{NVIDIA}block"), "topograph before 1.0"),
        (tuple(f"{AWS}network-node-layer-{layer}" for layer in (1, 2, 4)), "aws"),
        (tuple(f"{AWS}network-node-layer-{layer}" for layer in (1, 2, 3)), "aws"),
        (
            tuple(
                f"cloud.google.com/gce-topology-{name}" for name in ("block", "subblock", "host")
            ),
            "gcp",
        ),
        (
            tuple(
                f"oci.oraclecloud.com/rdma.{name}_id"
                for name in ("hpc_island", "network_block", "local_block")
            ),
            "oci rdma",
        ),
        (
            tuple(f"oci.oraclecloud.com/host.{name}_id" for name in ("network_block", "rack")),
            "oci host",
        ),
        (
            tuple(f"cloud.provider.com/topology-{name}" for name in ("block", "rack")),
            "cloud.provider.com",
        ),
    ],
)
def test_each_family_counts_from_its_own_end(keys: tuple[str, ...], source: str) -> None:
    path = ("x", "y", "z")[: len(keys)]
    found = only({node: dict(zip(keys, path, strict=True)) for node in ("a", "b")})
    assert found.source == f"{source} labels"
    assert [tier["a"] for tier in found.tiers] == [
        "/".join(path[:depth]) for depth in range(len(path), 0, -1)
    ]
    assert not found.strange


@pytest.mark.parametrize(
    ("key", "source"),
    [
        ("accelerator.topograph.run/domain", "topograph"),
        ("accelerated.topology.nvidia.com/domain-0", "topograph tier"),
        ("accelerated.topology.nvidia.com/level-0", "topograph level"),
        ("xclr.topology.nvidia.com/domain", "topograph xclr"),
        (f"{NVIDIA}accelerator", "topograph before 1.0"),
        (CLIQUE, "gpu.clique"),
        (f"{AWS}ultraserver-id", "aws"),
        ("oci.oraclecloud.com/host.gpu_memory_fabric_id", "oci rdma"),
    ],
)
def test_an_accelerator_domain_is_a_scale_up_domain_and_no_tier(key: str, source: str) -> None:
    found = only({"a": {key: "6f4a-07.1"}, "b": {key: "6f4a-07.2"}, "c": {}})
    assert found.source == f"{source} labels"
    assert found.scale_up_domains == {"a": "6f4a-07.1", "b": "6f4a-07.2"}
    assert not found.tiers
    assert found.strange == (f"no {key}: 1 of 3 nodes, the first is c",)


def test_missing_or_empty_label_excludes_node_from_tier() -> None:
    rack, block = "railwright.dev/rack", "railwright.dev/block"
    found = only({"a": {block: "b", rack: "r"}, "c": {block: "b", rack: ""}, "b": {block: "b"}})
    assert found.tiers == ({"a": "b/r"}, {"a": "b", "b": "b", "c": "b"})
    assert found.strange == (f"no {rack}: 2 of 3 nodes, the first is b",)


def test_rack_without_block_is_left_out_where_others_have_one() -> None:
    rack, block = "railwright.dev/rack", "railwright.dev/block"
    found = only({"a": {block: "b", rack: "r"}, "b": {rack: "r"}, "c": {rack: "s"}})
    assert found.tiers == ({"a": "b/r", "c": "/s"}, {"a": "b"})
    assert found.strange == (
        f"no {block}: 2 of 3 nodes, the first is b",
        f"{rack} that others have too, and not all that is above it: 1 of 3 nodes, the first is b",
    )


def test_label_without_value_is_no_tier() -> None:
    assert only({"a": {"railwright.dev/rack": "r"}}).tiers == ({"a": "r"},)
    assert not labels.source_reports({"a": {"railwright.dev/rack": ""}, "b": {"zone": "z"}})
    assert not labels.source_reports({})


def test_both_topograph_generations_are_one_family() -> None:
    leaf, block = f"{NVIDIA}leaf", f"{NVIDIA}block"
    found = only({"a": {leaf: "s1"}, "b": {block: "s1"}, "c": {leaf: "s1", block: "s2"}})
    assert found.tiers == ({"a": "s1", "b": "s1", "c": "s1"},)
    assert found.strange == (
        f"{leaf} or {block} with two values, of which the first counts: 1 of 3 nodes, "
        "the first is c",
    )


def test_two_families_give_two_accounts_to_compare() -> None:
    found = labels.source_reports({"a": {f"{TIER}0": "l1", CLIQUE: "6f-4a.3"}})
    assert [source_report.source for source_report in found] == [
        "gpu.clique labels",
        "topograph labels",
    ]


def test_sub_domain_labels_are_reported_and_not_read() -> None:
    domain = "accelerator.topograph.run/domain"
    within = "accelerator.topograph.run/sub-domain"
    found = only({"a": {domain: "d", within: "d1"}, "b": {domain: "d", within: "d2"}})
    assert found.scale_up_domains == {"a": "d", "b": "d"}
    assert found.strange == (
        f"{within} is not read: scale-up domains are not divided further: "
        "2 of 2 nodes, the first is a",
    )


@pytest.mark.parametrize("value", ["00000000-0000-0000-0000-000000000000.0", "0.32766", ".1"])
def test_a_clique_of_no_cluster_is_no_scale_up_domain(value: str) -> None:
    found = only({"a": {CLIQUE: value}, "b": {CLIQUE: value}, "c": {CLIQUE: "00a0-00.0"}})
    assert found.scale_up_domains == {"c": "00a0-00.0"}
    assert found.strange == (f"{CLIQUE} of no cluster: 2 of 3 nodes, the first is a",)


def test_placeholder_label_is_no_shared_rack() -> None:
    found = only({node: {f"{TIER}0": "no-topology"} for node in "ab"} | {"c": {f"{TIER}0": "leaf"}})
    assert found.tiers == ({"c": "leaf"},)
    assert found.strange == (f"no {TIER}0: 2 of 3 nodes, the first is a",)


def test_machine_label_is_a_tier_only_where_nodes_share_one() -> None:
    block, host = "cloud.google.com/gce-topology-block", "cloud.google.com/gce-topology-host"
    alone = only({"a": {block: "b", host: "h1"}, "c": {block: "b", host: "h2"}})
    assert alone.tiers == ({"a": "b", "c": "b"},)
    shared = only({"a": {block: "b", host: "h1"}, "c": {block: "b", host: "h1"}})
    assert shared.tiers[0] == {"a": "b/h1", "c": "b/h1"}


def test_keys_of_the_sites_own_choice_come_first_and_never_twice() -> None:
    found = labels.source_reports({"a": {"hall": "h", "row": "r", CLIQUE: "c.1"}}, ("hall", "row"))
    assert [source_report.source for source_report in found] == [
        "configured labels",
        "gpu.clique labels",
    ]
    assert found[0].tiers == ({"a": "h/r"}, {"a": "h"})
    ours = ("railwright.dev/block", "railwright.dev/rack")
    assert only(dict.fromkeys("ab", dict.fromkeys(ours, "x")), ours).source == "railwright labels"


def test_a_number_that_no_tier_has_is_none() -> None:
    odd = {f"{TIER}01": "x", f"{TIER}x": "x", f"{TIER}-1": "x", f"{TIER}99999": "x"}
    assert not labels.source_reports({"a": odd})
