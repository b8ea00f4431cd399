"""ibnetdiscover's output, read. The text here is written for these tests in the tool's format;
what the real tool prints is read in tests/integration."""

from __future__ import annotations

import re

import pytest

from fixtures.remarks import remarks
from railwright_topology.sources import ibnetdiscover
from railwright_topology.wiring import Switch, Trunk, Uplink, WiringError

FABRIC = """
#
# Topology file: generated on Sat Nov 21 12:00:00 2026
#
# Initiated from node 0002c90000000001 port 0002c90000000002

vendid=0x2c9
devid=0xd2f2
sysimgguid=0xa1
switchguid=0xa1(a1)
Switch\t65 "S-a1"\t\t# "MF0;leaf-1:MQM9700/U1" enhanced port 0 lid 7 lmc 0
[1]\t"H-b1"[1](b1) \t\t# "node-1 mlx5_0" lid 64 4xNDR
[2]\t"H-b2"[1](b2) \t\t# "node-2 HCA-3" lid 65 4xHDR
[3]\t"H-b2"[2](b3) \t\t# "node-2 HCA-3" lid 66 2xHDR
[4]\t"H-c1"[1](c1) \t\t# "MT4129 ConnectX7 Mellanox Technologies" lid 67 4xNDR
[33]\t"S-a2"[1]\t\t# "spine" lid 3 4xNDR
[34]\t"S-a2"[2]\t\t# "spine" lid 3 4xNDR
[65]\t"H-d1"[1](d1) \t\t# "Mellanox Technologies Aggregation Node" lid 68 4xNDR

Switch\t65 "S-a2"\t\t# "spine" base port 0 lid 3 lmc 0
[1]\t"S-a1"[33]\t\t# "MF0;leaf-1:MQM9700/U1" lid 7 4xNDR
[2]\t"S-a1"[34]\t\t# "MF0;leaf-1:MQM9700/U1" lid 7 4xNDR

vendid=0x2c9
caguid=0xb1
Ca\t1 "H-b1"\t\t# "node-1 mlx5_0"
[1](b1) \t"S-a1"[1]\t\t# lid 64 lmc 0 "MF0;leaf-1:MQM9700/U1" lid 7 4xNDR

Ca\t2 "H-b2"\t\t# "node-2 HCA-3"
[1](b2) \t"S-a1"[2]\t\t# lid 65 lmc 0 "MF0;leaf-1:MQM9700/U1" lid 7 4xHDR
[2](b3) \t"S-a1"[3]\t\t# lid 66 lmc 0 "MF0;leaf-1:MQM9700/U1" lid 7 2xHDR

Ca\t1 "H-c1"\t\t# "MT4129 ConnectX7 Mellanox Technologies"
[1](c1) \t"S-a1"[4]\t\t# lid 67 lmc 0 "MF0;leaf-1:MQM9700/U1" lid 7 4xNDR

Ca\t1 "H-d1"\t\t# "Mellanox Technologies Aggregation Node"
[1](d1) \t"S-a1"[65]\t\t# lid 68 lmc 0 "MF0;leaf-1:MQM9700/U1" lid 7 4xNDR
"""


def test_a_fabric_is_read_with_its_speeds_and_what_names_no_host() -> None:
    found = ibnetdiscover.parse(FABRIC)
    assert found.switches == (Switch("S-a1", "leaf-1", reduces=True), Switch("S-a2", "spine"))
    assert found.uplinks == (
        Uplink("node-1", "mlx5_0", "S-a1", 50_000_000_000),
        Uplink("node-2", "HCA-3", "S-a1", 25_000_000_000),
        Uplink("node-2", "HCA-3/2", "S-a1", 12_500_000_000),
    )
    assert found.trunks == (Trunk(("S-a1", "S-a2"), 2, 50_000_000_000),)
    assert found.strange == (
        "adapter H-c1 on leaf-1 is called 'MT4129 ConnectX7 Mellanox Technologies': names no host",
    )


@pytest.mark.parametrize(
    ("changed", "into", "line", "rule"),
    [
        ('"S-a2"[1]\t\t# "spine" lid 3 4xNDR', "what", 16, "neither a node nor one of its ports"),
        ("lid 64 4xNDR", "lid 64", 12, "a port ends with its rate, such as 4xNDR"),
        ("lid 64 4xNDR", "lid 64 4xZDR", 12, "known: SDR, DDR"),
        ('Ca\t1 "H-b1"', 'Ca\t1 "H-bb"', 12, "'H-b1' is at the other end, and described nowhere"),
    ],
)
def test_omission_has_line_and_rule(changed: str, into: str, line: int, rule: str) -> None:
    stated = remarks(lambda: ibnetdiscover.parse(FABRIC.replace(changed, into, 1)))
    assert re.search(f"line {line}: .*{re.escape(rule)}", stated)


@pytest.mark.parametrize("text", ["", "# nothing\n", 'Ca\t1 "H-b1"\t\t# "node-1 mlx5_0"\n'])
def test_a_text_without_a_switch_is_none(text: str) -> None:
    with pytest.raises(WiringError, match="no switch is in it"):
        ibnetdiscover.parse(text)


def test_a_text_without_a_host_is_none() -> None:
    with pytest.raises(WiringError, match="no host is on a switch"):
        ibnetdiscover.parse('Switch\t65 "S-a1"\t\t# "leaf" enhanced port 0 lid 7 lmc 0\n')


def test_text_whose_adapters_name_no_host_is_refused() -> None:
    """Not with what else could not be read."""
    text = (
        FABRIC.replace("node-1 mlx5_0", "x").replace("node-2 HCA-3", "y").replace("4xHDR", "4xZZ")
    )
    with pytest.raises(
        WiringError, match=r"no host is on a switch: adapter H-\w\w .* names no host"
    ):
        ibnetdiscover.parse(text)


@pytest.mark.parametrize(
    "kinds", ["spines leaves adapters", "leaves spines adapters", "adapters leaves spines"]
)
def test_output_that_was_cut_off_anywhere_loses_no_host(kinds: str) -> None:
    """It is refused: else nodes would lose the places that they had. The order is that of the tool,
    with ``-g`` too."""
    described = _described_nodes()
    text = "".join(node for kind in kinds.split() for node in described[kind])
    hosts = {each.host for each in ibnetdiscover.parse(text).uplinks}
    assert len(hosts) == 9
    for end in range(len(text)):
        try:
            found = ibnetdiscover.parse(text[:end])
        except WiringError:
            continue
        assert {each.host for each in found.uplinks} == hosts, text[max(0, end - 200) : end]


def test_second_output_that_was_cut_off_is_refused() -> None:
    described = _described_nodes()
    text = "".join(node for nodes in described.values() for node in nodes)
    second = re.sub(r'"([SH]-)', r'"\1b', text).replace("mlx5_0", "mlx5_1")
    assert len(ibnetdiscover.parse(text + second).switches) == 10
    with pytest.raises(WiringError, match="it was cut off"):
        ibnetdiscover.parse(text + second[: second.index('Switch\t65 "S-bleaf-0"')])


@pytest.mark.parametrize(
    "broken",
    ['Rt\t2 "R-77"\t\t# "router"\n', ""],
    ids=["described", "left out"],
)
def test_router_need_not_be_described(broken: str) -> None:
    """With ``-g``, one of a chassis is in no section of the output."""
    port = '[36]\t"R-77"[1](77)\t\t# "router" lid 9 4xNDR\n'
    text = FABRIC.replace("[65]", f"{port}[65]", 1) + broken
    assert ibnetdiscover.parse(text).uplinks == ibnetdiscover.parse(FABRIC).uplinks


def test_unreadable_rates_excuse_no_missing_adapter() -> None:
    text = FABRIC.replace("4xNDR", "??NDR")
    assert len(ibnetdiscover.parse(text).uplinks) == 3
    with pytest.raises(WiringError, match="it was cut off"):
        ibnetdiscover.parse(text[: text.index('Ca\t1 "H-d1"')])


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("into", ["Cx", "", "dropped"])
def test_adapter_that_cannot_be_read_is_left_out_alone(at: int, into: str) -> None:
    """Also the last one, of a text without a line end."""
    nodes = _described_nodes()
    text = "".join([*nodes["spines"], *nodes["leaves"], *nodes["adapters"]]).rstrip("\n")
    heads = [line for line in text.splitlines(keepends=True) if line.startswith("Ca")]
    head = heads[-at]
    broken = "" if into == "dropped" else head.replace("Ca", into)
    found = ibnetdiscover.parse(text.replace(head, broken))
    assert len(found.uplinks) == len(ibnetdiscover.parse(text).uplinks) - 1


def test_ports_of_a_missing_node_are_no_ports_of_another() -> None:
    """They were read as further ports of the node before, without a remark."""
    head = next(line for line in FABRIC.splitlines() if "spine" in line and "Switch" in line)
    found = ibnetdiscover.parse(FABRIC.replace(head, ""))
    whole = ibnetdiscover.parse(FABRIC)
    assert found.uplinks == whole.uplinks
    assert any("is a port of no node" in stated for stated in found.strange)


def test_repeated_ibnetdiscover_output_counts_once() -> None:
    once, twice = ibnetdiscover.parse(FABRIC), ibnetdiscover.parse(FABRIC + FABRIC)
    assert (twice.switches, twice.uplinks, twice.trunks) == (
        once.switches,
        once.uplinks,
        once.trunks,
    )
    assert sum("is described twice" in stated for stated in twice.strange) > 2


def test_unknown_speed_is_reported_and_cable_kept() -> None:
    found = ibnetdiscover.parse(FABRIC.replace("lid 64 4xNDR", "lid 64 4x???", 1))
    assert found.uplinks[0] == Uplink("node-1", "mlx5_0", "S-a1", 0)
    assert "node-1 mlx5_0 on leaf-1 shows no speed" in found.strange


def test_adapters_of_one_name_are_none_of_anybodys() -> None:
    found = ibnetdiscover.parse(FABRIC.replace("node-2 HCA-3", "node-1 mlx5_0"))
    assert [uplink.nic for uplink in found.uplinks] == ["mlx5_0/2"]
    assert "2 adapters are called 'node-1 mlx5_0': none of them counts" in found.strange


def test_switches_without_unique_name_are_distinct() -> None:
    boards = FABRIC.replace("MF0;leaf-1:MQM9700/U1", "MF0;core:CS8500/L01/U1")
    assert ibnetdiscover.parse(boards).switches[0].name == "core/L01/U1"
    equal = FABRIC.replace("MF0;leaf-1:MQM9700/U1", "spine")
    assert [switch.name for switch in ibnetdiscover.parse(equal).switches] == [
        "spine S-a1",
        "spine S-a2",
    ]
    nameless = FABRIC.replace("MF0;leaf-1:MQM9700/U1", "")
    assert ibnetdiscover.parse(nameless).switches[0].name == "S-a1"


def test_output_with_chassis_and_all_details_is_the_same() -> None:
    """``ibnetdiscover -g -f``: headings, the numbers of ports outside, and more behind the rate."""
    detailed = FABRIC.replace("sysimgguid=0xa1", "sysimgguid=0xa1\t\t# Chassis 1")
    detailed = detailed.replace(
        "\nvendid=0x2c9\ndevid", "\nChassis 1 (guid 0xa1)\n\nvendid=0x2c9\ndevid"
    )
    detailed = detailed.replace("switchguid=0xa1(a1)", "switchguid=0xa1(a1)\t# Spine 2 Chip 1")
    detailed = detailed.replace('\nSwitch\t65 "S-a2"', '\nNon-Chassis Nodes\n\nSwitch\t65 "S-a2"')
    detailed = re.sub(r"(x[NH]DR)$", r"\1 s=4 w=2 v=3", detailed, flags=re.MULTILINE)
    detailed = detailed.replace('[33]\t"S-a2"[1]', '[33][ext 4]\t"S-a2"[1][ext 17]')
    detailed = detailed.replace('[1]\t"S-a1"[33]', '[1][ext 17]\t"S-a1"[33][ext 4]')
    detailed = detailed.replace('[1](b1) \t"S-a1"[1]', '[1](b1) \t"S-a1"[1][ext 1]')
    assert detailed.count("ext") == 5
    assert ibnetdiscover.parse(detailed) == ibnetdiscover.parse(FABRIC)


def _described_nodes() -> dict[str, list[str]]:
    """Two spines, three leaves with three adapters each, as the tool prints them."""
    spines, leaves = range(2), range(3)
    return {
        "spines": [
            _section("Switch\t65", f"S-spine-{spine}", [f"S-leaf-{leaf}" for leaf in leaves])
            for spine in spines
        ],
        "leaves": [
            _section(
                "Switch\t65",
                f"S-leaf-{leaf}",
                [f"H-{leaf}-{at}" for at in range(3)] + [f"S-spine-{spine}" for spine in spines],
            )
            for leaf in leaves
        ],
        "adapters": [
            _section("Ca\t1", f"H-{leaf}-{at}", [f"S-leaf-{leaf}"])
            for leaf in leaves
            for at in range(3)
        ],
    }


def _section(head: str, node: str, ends: list[str]) -> str:
    def name(node: str) -> str:
        return f"node{node[1:]} mlx5_0" if node.startswith("H-") else node[2:]

    ports = [
        f'[{at}]\t"{end}"[1]\t\t# "{name(end)}" lid 3 4xNDR\n' for at, end in enumerate(ends, 1)
    ]
    return f'guid=0x1\n{head} "{node}"\t\t# "{name(node)}"\n{"".join(ports)}\n'
