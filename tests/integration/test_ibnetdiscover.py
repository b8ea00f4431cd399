"""The real ibnetdiscover on simulated InfiniBand fabrics: what is found is what was plugged."""

from __future__ import annotations

import json
from pathlib import Path

import networkx as nx
import pytest

from fixtures import infiniband
from fixtures.clos import Cable, Clos, netfile
from fixtures.command import run
from railwright_testbed import requirements
from railwright_topology import faults, layers
from railwright_topology.sources import ibnetdiscover
from railwright_topology.wiring import Wiring

CLOS = Clos()
ADAPTERS = 128 * 8
TREE = """\
12 nodes
  ibnetdiscover tier 3: 1 domain of 12 nodes (ibnetdiscover)
  ibnetdiscover tier 2: 1 domain of 12 nodes (ibnetdiscover)
  ibnetdiscover tier 1: 2 domains of 6 nodes (ibnetdiscover)
  ibnetdiscover: 12 hosts, 23 adapters on 2 rails, 7 switches
    tier 3: 1 switch
    tier 2: 2 switches, oversubscription 2 : 1
    tier 1: 4 switches, oversubscription 5.75 : 1
    23 adapters at 8 Gb/s
  rails: aligned on 11 of 12 nodes
    node-0003: rail 1 is miscabled at mlx5_1: it has no cable

12 nodes node-[0000-0011] in spine-0
└── 12 nodes node-[0000-0011] in leaf-0-[0-1]-0
    ├── 6 nodes node-[0000-0005] in tor-0-0-[0-1]
    └── 6 nodes node-[0006-0011] in tor-0-1-[0-1]

1 finding
- node-0003 has no cable at mlx5_1, where those of its kind have one
"""


@pytest.fixture(scope="module", autouse=True)
def tools() -> None:
    requirements.install(requirements.SIMULATED_NETWORKS)


def found(cables: list[Cable], folder: Path) -> Wiring:
    return ibnetdiscover.parse(infiniband.discovered(netfile(cables), folder))


def test_three_layer_clos_of_eight_rails_is_found(tmp_path: Path) -> None:
    cables = list(CLOS.cables())
    wiring = found(cables, tmp_path)
    names = {switch.id: switch.name for switch in wiring.switches}
    plugged = {(f"{uplink.host} {uplink.nic}", names[uplink.switch]) for uplink in wiring.uplinks}
    assert plugged == {cable for cable in cables if " " in cable[0]}
    assert len(plugged) == ADAPTERS
    trunks = {frozenset(names[end] for end in trunk.ends) for trunk in wiring.trunks}
    assert trunks == {frozenset(cable) for cable in cables if " " not in cable[0]}
    seen = layers.of(wiring)
    assert {nic: rail for (_, nic), rail in seen.rails.items()} == {
        f"mlx5_{number}": number for number in range(8)
    }
    groups = [CLOS.group(block, group) for block in range(2) for group in range(4)]
    assert [domain.hosts for domain in seen.domains[0]] == groups
    assert [len(domain.hosts) for domain in seen.domains[1]] == [64, 64]
    assert faults.of(wiring, seen) == ()


def test_faults_that_were_plugged_in_are_found_and_no_others(tmp_path: Path) -> None:
    cables = list(CLOS.cables())
    for gone in (("node-0017 mlx5_5", "tor-0-1-5"), ("tor-1-2-0", "leaf-1-0-1")):
        cables.remove(gone)
    cables[cables.index(("node-0099 mlx5_3", "tor-1-2-3"))] = ("node-0099 mlx5_3", "tor-1-2-4")
    wiring = found(cables, tmp_path)
    assert sorted(faults.of(wiring, layers.of(wiring))) == [
        "node-0017 has no cable at mlx5_5, where those of its kind have one",
        "node-0099 mlx5_3 is plugged into tor-1-2-4, and those of the hosts beside it into "
        "tor-1-2-3",
        "tor-1-2-0 has no cable to leaf-1-0-1, where those like it have one",
    ]


def test_topology_command_shows_the_discovered_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cables = list(Clos(blocks=1, groups=2, hosts=6, rails=2, leaves=1, spines=1).cables())
    cables.remove(("node-0003 mlx5_1", "tor-0-0-1"))
    file = tmp_path / "fabric.txt"
    file.write_text(infiniband.discovered(netfile(cables), tmp_path))

    def drawn(*options: str) -> str:
        assert run("topology", f"ibnetdiscover.txt={file}", *options) == 0
        return capsys.readouterr().out

    assert drawn() == TREE
    graph = nx.parse_graphml(drawn("--output", "graphml"))
    assert graph.edges["node-0000", "tor-0-0-1"]["rails"] == "1"
    assert {tier for _, tier in graph.nodes(data="tier")} == {0, 1, 2, 3}
    answer = json.loads(drawn("-o", "json"))
    (network,) = answer["networks"]
    assert (network["rails"], len(answer["graph"]["nodes"])) == (2, 12 + 4 + 2 + 1)
    assert '"leaf-0-0-0" -- "spine-0" [label="8 Gb/s"];' in drawn("-o", "dot")


def test_malformed_file_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "other.txt"
    file.write_text("# topology.conf\nSwitchName=s1 Nodes=n1\n")
    assert run("topology", f"ibnetdiscover.txt={file}") == 2
    assert capsys.readouterr().err == (
        "railwright: ibnetdiscover.txt, line 2: 'SwitchName=s1 Nodes=n1' is neither a node nor one "
        "of its ports\n"
    )
    assert run("topology", str(tmp_path / "none")) == 2
