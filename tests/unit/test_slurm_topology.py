"""Slurm's topology files, read. The files here are written for these tests, in the form that its
manual pages topology.conf(5) and topology.yaml(5) describe."""

from __future__ import annotations

import pytest

from railwright_topology.accounts import Account, Basis
from railwright_topology.sources import slurm
from railwright_topology.wiring import WiringError

TREE = r"""
# a tree, and # a second thought
SwitchName=top Switches=spine-[1-2]
switchname=spine-1 SWITCHES=leaf-[1-2] LinkSpeed=400   # two of them \
SwitchName=spine-2 \
    Switches=leaf-3
SwitchName = leaf-1 Nodes=gpu[01-02]
SwitchName=leaf-2 Nodes="gpu[03-04],login\#1"
SwitchName=leaf-3 Nodes=r[1-2]n[1-2]
"""

BLOCKS = """
BlockName=b3 Nodes=gpu[01-02]
BlockName=b1 Nodes=gpu[03-04]
BlockName=b2 Nodes=gpu[05-06],gpu09
BlockSizes=2,4,8
"""

YAML = """---
- topology: racks
  cluster_default: false
  block:
    block_sizes: [1, 2]
    blocks:
    - {block: b1, nodes: "gpu[01-02]"}
    - {block: b2, nodes: "gpu[03-04]"}
- topology: fabric
  cluster_default: True
  tree:
    switches:
      - switch: top
        children: leaf-[1-2]
      - switch: leaf-1
        nodes: gpu[01-02]
      - switch: leaf-2
        nodes: [gpu03, "gpu04"]
- topology: none
  flat: true
"""


def test_a_tree_is_read_from_the_nodes_outwards() -> None:
    leaves = {
        "leaf-1": ("gpu01", "gpu02"),
        "leaf-2": ("gpu03", "gpu04", "login#1"),
        "leaf-3": ("r1n1", "r1n2", "r2n1", "r2n2"),
    }
    spines = {"leaf-1": "spine-1", "leaf-2": "spine-1", "leaf-3": "spine-2"}
    near = {node: leaf for leaf, nodes in leaves.items() for node in nodes}
    assert slurm.parse_conf(TREE) == Account(
        "topology.conf",
        Basis.TOLD,
        (near, {node: spines[leaf] for node, leaf in near.items()}, dict.fromkeys(near, "top")),
    )


def test_a_shorter_branch_stands_for_itself_at_the_tiers_that_it_lacks() -> None:
    found = slurm.parse_conf(
        "SwitchName=top Switches=a,spine\nSwitchName=spine Switches=b\n"
        "SwitchName=a Nodes=n1\nSwitchName=b Nodes=n2\nSwitchName=empty\n"
    )
    assert found.tiers == (
        {"n1": "a", "n2": "b"},
        {"n1": "a", "n2": "spine"},
        {"n1": "top", "n2": "top"},
    )


def test_switches_that_nothing_joins_are_read_as_they_are() -> None:
    assert slurm.parse_conf("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n2").tiers == (
        {"n1": "a", "n2": "b"},
    )


def test_blocks_form_larger_ones_in_the_order_of_the_file() -> None:
    near, wider, widest = slurm.parse_conf(BLOCKS).tiers
    assert near["gpu01"] == near["gpu02"] == "b3"
    assert {wider[node] for node in ("gpu01", "gpu02", "gpu03", "gpu04")} == {"b3..b1"}
    assert {wider[node] for node in ("gpu05", "gpu06", "gpu09")} == {"b2..b2"}
    assert {*widest.values()} == {"b3..b2"}
    assert len(slurm.parse_conf(BLOCKS.replace("BlockSizes", "#")).tiers) == 1


@pytest.mark.parametrize(
    ("text", "line", "rule"),
    [
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a", 1, "'a' is above itself"),
        ("SwitchName=a Switches=a", 1, "'a' is above itself"),
        ("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n[1-2]", 2, "node 'n1' is in both 'a' and 'b'"),
        (
            "SwitchName=a Nodes=n1\n\nSwitchName=b Switches=a,c",
            3,
            "'c' is below 'b', and described",
        ),
        (
            "SwitchName=a Nodes=n1\nSwitchName=b Switches=a\nSwitchName=c Switches=a",
            3,
            "switch 'a' is in both 'b' and 'c'",
        ),
        ("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2", 2, "'a' is described twice"),
        ("SwitchName=a Nodes=n[1-99999]", 1, "more names than fit"),
        (
            "SwitchName=a Nodes=n[1-40000]\nSwitchName=b Nodes=m[1-40000]",
            2,
            "past 65536 names of a node",
        ),
        ("SwitchName=a Nodes=n[1-", 1, "bracket without its other one"),
        (f"SwitchName={'a' * 254} Nodes=n1", 1, "1 to 253 printable characters"),
        ('SwitchName="" Nodes=n1', 1, "1 to 253 printable characters"),
        ("SwitchName=a Nodes=,", 1, "names nobody"),
        ("SwitchName=a Nodes=n1 Switches=b", 1, "Switches= or Nodes=, not both"),
        ("SwitchName=a", 1, "no node is in it"),
        ("", 1, "no node is in it"),
        ("\nhello there", 2, "'hello there' is no Key=value"),
        ("SwitchName=a Nodes=n1 Speed=4", 1, "'Speed' does not belong to switchname"),
        ("SwitchName=a Nodes=n1 nodes=n2", 1, "'nodes' stands twice"),
        ("RingName=a Nodes=n1", 1, "tree and block are read"),
        ("Nodes=n1 SwitchName=a", 1, "starts with SwitchName="),
        ("SwitchName=a Nodes=n1\nBlockName=b Nodes=n2", 2, "it is one or the other"),
        ("BlockName=b", 1, "block 'b' has no Nodes="),
        ("BlockName=b Nodes=n1\nBlockName=b Nodes=n2", 2, "'b' is described twice"),
        ("BlockName=b Nodes=n1\nBlockName=c Nodes=n1", 2, "node 'n1' is in both 'b' and 'c'"),
        ("BlockSizes=2\nBlockName=b Nodes=n1\nBlockSizes=4", 3, "BlockSizes stands twice"),
        ("BlockName=b Nodes=n1\nBlockSizes=2,x", 2, "numbers of nodes, such as 18,36"),
        ("BlockName=b Nodes=n1\nBlockSizes=0", 2, "numbers of nodes, such as 18,36"),
        ("BlockName=b Nodes=n1\nBlockSizes=4,6", 2, "block sizes double, or more: 4, 8, 16"),
        ("BlockName=b Nodes=n1\nBlockSizes=4,12", 2, "block sizes double, or more"),
        ("BlockName=b Nodes=n1\nBlockSizes=4,16,8", 2, "block sizes double, or more"),
        ("#" * (slurm.CHARACTERS_MAX + 1), 1, "at most 4194304"),
    ],
)
def test_a_conf_that_cannot_be_used_is_refused_with_the_line_and_the_rule(
    text: str, line: int, rule: str
) -> None:
    with pytest.raises(WiringError) as refused:
        slurm.parse_conf(text)
    assert f"topology.conf, line {line}: " in str(refused.value)
    assert rule in str(refused.value)


def test_a_tree_may_be_deep_but_not_without_end() -> None:
    links = "".join(f"SwitchName=s{each} Switches=s{each - 1}\n" for each in range(1, 6))
    assert len(slurm.parse_conf(f"SwitchName=s0 Nodes=n1\n{links}").tiers) == 6
    with pytest.raises(WiringError, match="line 1: 's0' is below 6 others"):
        slurm.parse_conf(f"SwitchName=s0 Nodes=n1\n{links}SwitchName=s6 Switches=s5\n")


def test_each_topology_gives_an_account_and_the_clusters_own_comes_first() -> None:
    fabric, racks, flat = slurm.parse_yaml(YAML)
    assert [each.source for each in (fabric, racks, flat)] == [
        f"topology.yaml {name}" for name in ("fabric", "racks", "none")
    ]
    near = {"gpu01": "leaf-1", "gpu02": "leaf-1", "gpu03": "leaf-2", "gpu04": "leaf-2"}
    assert fabric.tiers == (near, dict.fromkeys(near, "top"))
    assert [sorted({*tier.values()}) for tier in racks.tiers] == [["b1", "b2"], ["b1..b2"]]
    assert flat.tiers == ()


@pytest.mark.parametrize(
    ("changed", "into", "line", "rule"),
    [
        ("flat: true", "ring: {rings: []}", 19, "one of tree, block, flat, not 'ring'"),
        ("flat: true", "torus3d: {}", 19, "one of tree, block, flat, not 'torus3d'"),
        ("  flat: true", "", 19, "a topology is one of tree, block, flat"),
        ("flat: true", "flat: maybe", 20, "'maybe' is neither true nor false"),
        ("flat: true", "flat: false", 20, "flat is true, or another kind stands here"),
        ("- topology: none", "- cluster_default: no", 19, "a topology has a name"),
        ("topology: none", "topology: racks", 19, "topology 'racks' is described twice"),
        ("nodes: gpu[01-02]", "nodes: gpu[01-", 16, "bracket without its other one"),
        ("nodes: gpu[01-02]", "nodes: gpu03", 17, "is in both 'leaf-1' and 'leaf-2'"),
        ("nodes: gpu[01-02]", "nodes:", 16, "a host list stands here"),
        ("nodes: gpu[01-02]", "children: top", 13, "'top' is above itself"),
        ("children: leaf-[1-2]", "children: leaf-[1-3]", 13, "'leaf-3' is below 'top'"),
        ("children: leaf-[1-2]", "links: x", 14, "'links' is no field of a switch"),
        (
            "children: leaf-[1-2]",
            "children: leaf-[1-2]\n        nodes: n",
            13,
            "children or nodes, not both",
        ),
        ("- switch: top\n        children: leaf-[1-2]", "- children: x", 13, "a switch has a name"),
        ("{block: b1, nodes", "{block: b2, nodes", 8, "'b2' is described twice"),
        ('b1, nodes: "gpu[01-02]"', "b1", 7, "block 'b1' has no nodes"),
        ("[1, 2]", "[1, 3]", 5, "block sizes double, or more"),
        ("[1, 2]", "4", 5, "a list of block sizes stands here"),
    ],
)
def test_a_yaml_that_cannot_be_used_is_refused_with_the_line_and_the_rule(
    changed: str, into: str, line: int, rule: str
) -> None:
    assert changed in YAML
    with pytest.raises(WiringError) as refused:
        slurm.parse_yaml(YAML.replace(changed, into, 1))
    assert rule in str(refused.value)
    assert f"topology.yaml, line {line}: " in str(refused.value)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("[]", "no topology is in it"),
        ("topology: a", "a list of topologies stands here"),
        ("- a", "a mapping of one topology stands here"),
        ("- {topology: a, tree: }", "no node is in it"),
        ("- {topology: a, block: }", "no node is in it"),
        ("- {topology: a, flat: true, tree: }", "a topology is one of"),
    ],
)
def test_a_yaml_without_a_topology_is_none(text: str, rule: str) -> None:
    with pytest.raises(WiringError, match=rule):
        slurm.parse_yaml(text)
