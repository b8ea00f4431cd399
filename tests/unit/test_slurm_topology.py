"""Slurm's topology files, read. The files here are written for these tests, in the form that its
manual pages topology.conf(5) and topology.yaml(5) describe."""

from __future__ import annotations

import re

import pytest

from fixtures.remarks import remarks
from railwright_topology.source_reports import Provenance, SourceReport
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


def one(text: str) -> SourceReport:
    (source_report,) = slurm.parse_conf(text)
    return source_report


def test_a_tree_is_read_from_the_nodes_outwards() -> None:
    leaves = {
        "leaf-1": ("gpu01", "gpu02"),
        "leaf-2": ("gpu03", "gpu04", "login#1"),
        "leaf-3": ("r1n1", "r1n2", "r2n1", "r2n2"),
    }
    spines = {"leaf-1": "spine-1", "leaf-2": "spine-1", "leaf-3": "spine-2"}
    near = {node: leaf for leaf, nodes in leaves.items() for node in nodes}
    assert one(TREE) == SourceReport(
        "topology.conf",
        Provenance.IMPORTED,
        (near, {node: spines[leaf] for node, leaf in near.items()}, dict.fromkeys(near, "top")),
    )


def test_shorter_branch_stands_for_missing_tiers() -> None:
    found = one(
        "SwitchName=top Switches=a,spine\nSwitchName=spine Switches=b\n"
        "SwitchName=a Nodes=n1\nSwitchName=b Nodes=n2\nSwitchName=empty\n"
    )
    assert found.tiers == (
        {"n1": "a", "n2": "b"},
        {"n1": "a", "n2": "spine"},
        {"n1": "top", "n2": "top"},
    )


def test_switches_that_nothing_joins_are_read_as_they_are() -> None:
    assert one("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n2").tiers == ({"n1": "a", "n2": "b"},)


def test_blocks_form_larger_ones_in_the_order_of_the_file() -> None:
    near, wider, widest = one(BLOCKS).tiers
    assert near["gpu01"] == near["gpu02"] == "b3"
    assert {wider[node] for node in ("gpu01", "gpu02", "gpu03", "gpu04")} == {"b3..b1"}
    assert {wider[node] for node in ("gpu05", "gpu06", "gpu09")} == {"b2..b2"}
    assert {*widest.values()} == {"b3..b2"}
    assert len(one(BLOCKS.replace("BlockSizes", "#")).tiers) == 1


@pytest.mark.parametrize(
    ("text", "line", "rule"),
    [
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a Nodes=n", 1, "'a' is above itself"),
        ("SwitchName=a Switches=a Nodes=n", 1, "'a' is above itself"),
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
        ("SwitchName=a Nodes=,", 1, "has no names"),
        ("SwitchName=a", 1, "no node is in it"),
        ("", 1, "no node is in it"),
        ("\nhello there", 2, "'hello there' is no Key=value"),
        ("SwitchName=a Nodes=n1 Speed=4", 1, "'Speed' does not belong to switchname"),
        ("SwitchName=a Nodes=n1 nodes=n2", 1, "'nodes' stands twice"),
        ("RingName=a Nodes=n1", 1, "'RingName': a line starts with SwitchName="),
        ("Nodes=n1 SwitchName=a", 1, "starts with SwitchName="),
        ("SwitchName=a Nodes=n1\nBlockName=b Nodes=n2", 1, "they are read as two sources"),
        ("BlockName=b", 1, "no node is in it"),
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
def test_conf_omission_has_line_and_rule(text: str, line: int, rule: str) -> None:
    stated = remarks(lambda: slurm.parse_conf(text))
    assert re.search(f"line {line}: .*{re.escape(rule)}", stated)


def test_a_tree_may_be_deep_but_not_without_end() -> None:
    links = "".join(f"SwitchName=s{each} Switches=s{each - 1}\n" for each in range(1, 6))
    deep = one(f"SwitchName=s0 Nodes=n1\n{links}")
    assert len(deep.tiers) == 6
    deeper = one(f"SwitchName=s0 Nodes=n1\n{links}SwitchName=s6 Switches=s5\n")
    assert deeper.tiers == deep.tiers
    assert deeper.strange == ("line 7: has 7 tiers: those from 's6' outwards are left out",)


def test_each_topology_gives_a_report_and_cluster_default_first() -> None:
    fabric, racks, flat = slurm.parse_yaml(YAML)
    assert [each.source for each in (fabric, racks, flat)] == [
        f"topology.yaml {name}" for name in ("fabric", "racks", "none")
    ]
    near = {"gpu01": "leaf-1", "gpu02": "leaf-1", "gpu03": "leaf-2", "gpu04": "leaf-2"}
    assert fabric.tiers == (near, dict.fromkeys(near, "top"))
    assert [sorted({*tier.values()}) for tier in racks.tiers] == [["b1", "b2"], ["b1..b2"]]
    assert flat.tiers == ()


def test_flat_topology_with_options_is_read() -> None:
    """From 26.05 on Slurm reads options there."""
    (found,) = slurm.parse_yaml("- topology: t\n  flat:\n    alpha_step_rank: true\n")
    assert (found.tiers, found.strange) == ((), ())


@pytest.mark.parametrize(
    ("changed", "into", "line", "rule"),
    [
        ("flat: true", "ring: {rings: []}", 19, "one of tree, block, flat, not 'ring'"),
        ("flat: true", "torus3d: {}", 19, "one of tree, block, flat, not 'torus3d'"),
        ("  flat: true", "", 19, "a topology is one of tree, block, flat"),
        ("flat: true", "flat: maybe", 20, "'maybe' is neither true nor false"),
        ("flat: true", "flat: false", 20, "flat is true, or another kind stands here"),
        ("- topology: none", "- cluster_default: no", 19, "topology is not there"),
        ("topology: none", "topology: racks", 19, "topology 'racks' is described twice"),
        ("nodes: gpu[01-02]", "nodes: gpu[01-", 16, "bracket without its other one"),
        ("nodes: gpu[01-02]", "nodes: gpu03", 17, "is in both 'leaf-1' and 'leaf-2'"),
        ("nodes: gpu[01-02]", "nodes: n\n        children: top", 15, "'leaf-1' is above"),
        ("children: leaf-[1-2]", "children: leaf-[1-3]", 13, "'leaf-3' is below 'top'"),
        ("children: leaf-[1-2]", "links: x", 14, "'links' is no field of a switch"),
        ("- switch: top\n        children: leaf-[1-2]", "- children: x", 13, "switch is not there"),
        ("{block: b1, nodes", "{block: b2, nodes", 8, "'b2' is described twice"),
        ("[1, 2]", "[1, 3]", 5, "block sizes double, or more"),
        ("[1, 2]", "4", 5, "a list of block sizes stands here"),
    ],
)
def test_yaml_omission_has_line_and_rule(changed: str, into: str, line: int, rule: str) -> None:
    assert changed in YAML
    stated = remarks(lambda: slurm.parse_yaml(YAML.replace(changed, into, 1)))
    assert re.search(f"line {line}: .*{re.escape(rule)}", stated)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("[]", "no topology is in it"),
        ("topology: a", "a list of topologies stands here"),
        ("- a", "a mapping of a topology stands here"),
        ("- {topology: a, tree: }", "no node is in it"),
        ("- {topology: a, block: }", "no node is in it"),
        ("- {topology: a, flat: true, tree: }", "a topology is one of"),
    ],
)
def test_a_yaml_without_a_topology_is_none(text: str, rule: str) -> None:
    with pytest.raises(WiringError, match=rule):
        slurm.parse_yaml(text)


def test_node_below_two_switches_loses_only_its_place() -> None:
    """It cost all 80 nodes of a file once."""
    lines = [f"SwitchName=leaf-{leaf} Nodes=gpu[{leaf}0-{leaf}9]" for leaf in range(1, 9)]
    whole = "\n".join([*lines, "SwitchName=top Switches=leaf-[1-8]"])
    tiers = one(whole).tiers
    found = one(whole.replace("gpu[20-29]", "gpu[20-29],gpu17"))
    assert found.tiers == tuple({n: at for n, at in tier.items() if n != "gpu17"} for tier in tiers)
    assert found.strange == (
        "line 2: node 'gpu17' is in both 'leaf-1' and 'leaf-2': it is left out",
    )


def test_switch_below_two_others_has_nothing_above_it() -> None:
    found = one(
        "SwitchName=a Nodes=n1\nSwitchName=b Nodes=n2\nSwitchName=s Switches=a,b\n"
        "SwitchName=t Switches=a\nSwitchName=top Switches=s,t\n"
    )
    assert found.tiers == ({"n1": "a", "n2": "b"}, {"n2": "s"}, {"n2": "top"})
    assert found.strange == ("line 4: switch 'a' is in both 's' and 't': it is left out",)


def test_placeholder_switch_is_no_shared_rack() -> None:
    """Topograph puts nodes whose place it does not know on a switch of this name."""
    found = one("SwitchName=tor Nodes=n[1-2]\nSwitchName=no-topology Nodes=n[3-9]\n")
    assert found.tiers == ({"n1": "tor", "n2": "tor"},)
    assert found.strange == (
        "line 2: 'no-topology' is a placeholder: nodes of unknown place: 7, the first is n3",
    )


def test_phony_switch_of_a_node_set_is_no_shared_rack() -> None:
    """slurm-gcp writes one for the nodes of a set whose physical host it does not know."""
    found = one(
        "SwitchName=slurm-root Switches=ns_blue,a\nSwitchName=ns_blue Nodes=blue-[0-6]\n"
        "SwitchName=a Switches=a_a\nSwitchName=a_a Nodes=red-[0-1]\n"
    )
    assert found.tiers[0] == {"red-0": "a_a", "red-1": "a_a"}
    assert found.strange == (
        "line 2: 'ns_blue' is a placeholder: nodes of unknown place: 7, the first is blue-0",
    )


@pytest.mark.parametrize("name", ["unknown", "fabric-a.unknown"])
def test_catch_all_switch_is_no_shared_rack(name: str) -> None:
    """Soperator writes one for each fabric, for nodes without labels and nodes that are off."""
    found = one(
        f"SwitchName=root Switches=leaf,{name}\nSwitchName=leaf Nodes=n[1-2]\n"
        f"SwitchName={name} Nodes=n[3-4]\n"
    )
    assert found.tiers == ({"n1": "leaf", "n2": "leaf"}, {"n1": "root", "n2": "root"})
    assert found.strange == (
        f"line 3: {name!r} is a placeholder: nodes of unknown place: 2, the first is n3",
    )


def test_catch_all_block_is_no_shared_block() -> None:
    """slurm-gcp gathers nodes of unknown place in blocks of slurm-root, Soperator in unknown."""
    for name in ("slurm-root-0a1b2", "unknown"):
        found = one(
            f"BlockName=a Nodes=n[1-2]\nBlockName={name} Nodes=n[3-4]\nBlockName=b Nodes=n5\n"
            "BlockSizes=2,4\n"
        )
        near, wider = found.tiers
        assert near == {"n1": "a", "n2": "a", "n5": "b"}
        assert wider["n1"] != wider["n5"]
        assert len(found.strange) == 1


def test_slurm_show_topology_output_is_read() -> None:
    """``scontrol show topology`` has all nodes below a switch at each of them."""
    found = one(
        "SwitchName=top Level=1 LinkSpeed=1 Nodes=n[1-4] Switches=s[1-2]\n"
        "SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[1-2]\n"
        "SwitchName=s2 Level=0 LinkSpeed=1 Nodes=n[3-4]\n"
    )
    near = {"n1": "s1", "n2": "s1", "n3": "s2", "n4": "s2"}
    assert found.tiers == (near, dict.fromkeys(near, "top"))
    (blocks,) = slurm.parse_conf("BlockName=b BlockIndex=0 Nodes=n[1-2] BlockSize=18\n")
    assert blocks.tiers == ({"n1": "b", "n2": "b"},)
    assert not found.strange
    assert not blocks.strange


def test_switch_in_two_lines_is_one_switch() -> None:
    """Topograph writes the switches below one in a line, and its nodes in another."""
    found = one("SwitchName=s Switches=a\nSwitchName=s Nodes=n1\nSwitchName=a Nodes=n2\n")
    assert found.tiers == ({"n2": "a"}, {"n1": "s", "n2": "s"})
    assert not found.strange


def test_switches_and_blocks_of_one_file_are_two_sources() -> None:
    tree, blocks = slurm.parse_conf("SwitchName=a Nodes=n[1-2]\nBlockName=b Nodes=n1\n")
    assert (tree.source, tree.tiers) == ("topology.conf", ({"n1": "a", "n2": "a"},))
    assert (blocks.source, blocks.tiers) == ("topology.conf blocks", ({"n1": "b"},))


@pytest.mark.parametrize(
    "line", ["BlockName=b2 Nodes=", "BlockName=b2", "Block Name=?", "BlockName"]
)
def test_block_without_nodes_keeps_its_place(line: str) -> None:
    text = f"BlockName=b1 Nodes=n1\n{line}\nBlockName=b3 Nodes=n3\nBlockSizes=1,2\n"
    near, wider = one(text).tiers
    assert near == {"n1": "b1", "n3": "b3"}
    assert wider["n1"] != wider["n3"]


def test_topograph_yaml_before_0_2_is_read() -> None:
    (source_report,) = slurm.parse_yaml(
        "- topology: t\n  clusterDefault: true\n  block:\n    blockSizes: [1, 2]\n"
        "    blocks:\n    - block: b1\n      nodes: n1\n    - block: b2\n"
    )
    assert [*source_report.tiers] == [{"n1": "b1"}, {"n1": "b1..b2"}]
    assert not source_report.strange
