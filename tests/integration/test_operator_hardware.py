"""Hardware of nodes as agents report it: conflicts of sources, and slow nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from fixtures import command_line, machines
from integration import granted_rights
from integration.node_agents import NodeAgents
from integration.operator_site import FABRIC, Floor, Json, Site
from railwright_api import names
from railwright_testbed import waiting
from railwright_topology.parts import DeviceBenchmark
from railwright_topology.sources.hardware_documents import Document

MACHINE = machines.planted(Random(3))


@pytest.fixture
def agents(site: Site, tmp_path: Path) -> Iterator[NodeAgents]:
    started = NodeAgents(site, tmp_path)
    yield started
    started.clear()


def _status(site: Site) -> Json:
    found: Json = site.admin.get(FABRIC).get("status", {})
    return found


def _health(site: Site, node: str) -> Json:
    path = f"/apis/{names.API_VERSION}/{names.NODE_HEALTHS}"
    found = [each for each in site.admin.get(path)["items"] if each["metadata"]["name"] == node]
    return found[0]["spec"] if found else {}


def test_agent_inventory_and_its_conflicts_are_on_fabric(
    site: Site, floor: Floor, agents: NodeAgents
) -> None:
    one, other, *_ = floor.nodes
    address = MACHINE.gpus[0].address
    false = MACHINE.gpus[0].slot.numa + 7
    agents.start(one, MACHINE)
    agents.start(
        other,
        MACHINE,
        description=(
            f"{{version: 1, kinds: [{{accelerators: [{{pci: '{address}', numa: {false}}}]}}]}}"
        ),
    )
    waiting.until(
        lambda: sum(each["nodes"] for each in _status(site).get("hardware", [])) == 2,
        "the insides of two nodes",
        deadline_s=40,
        evidence=lambda: str(_status(site)),
    )
    status = _status(site)
    assert status["agents"]["silent"] == 0
    assert status["agents"]["nodes"] >= 2
    (kind,) = status["hardware"]
    assert kind["found"] == "8 accelerators 10de:2330, 8 rails at 200 Gb/s, 2 front-end at 200 Gb/s"
    assert kind["unknown"] == ["how accelerators are linked beside PCIe"]
    waiting.until(lambda: "hardware" in _health(site, one), "its health", deadline_s=20)
    health = _health(site, one)
    assert health["hardware"] == kind["found"]
    assert health["sources"] == ["agents"]
    assert health["rails"] == {"order": [*range(8)], "miscabled": []}
    assert f"{one} " in site.plane.kubectl("get", "nodehealths")
    (conflict,) = [each for each in status["conflicts"] if each["node"] == other]
    assert conflict["level"] == "numa"
    assert conflict["source"] == "description"
    assert f"by description its numa is {false}" in conflict["message"]


def test_slow_node_is_on_fabric(site: Site, floor: Floor, agents: NodeAgents) -> None:
    """The Fabric's status names a node whose device is slower than most."""
    usual = DeviceBenchmark("0000:17:00.0", "H100", "torch 9.9", 660 * 10**12, 29 * 10**11)
    slow = replace(usual, flop_per_s=403 * 10**12)
    name = floor.nodes[2]
    for node in floor.nodes:
        agents.report_document(node, Document(benchmarks=(slow if node == name else usual,)))
    waiting.until(
        lambda: _status(site).get("slow"),
        "a slow node",
        deadline_s=40,
        evidence=lambda: str(_status(site)),
    )
    status = _status(site)
    reported = "0000:17:00.0 multiplies at 61 % of what most H100 do: 400 TFLOP/s of 660 TFLOP/s"
    assert status["slow"] == [{"node": name, "message": reported}]
    assert (status["slowCount"], status["measuredNodes"]) == (1, 4)
    assert f"- {name}: {reported}\n" in command_line.topology(site.plane)
    speed = {"products": "0.61", "memory": "1.0"}
    waiting.until(
        lambda: _health(site, name).get("relativeSpeed") == speed, "its health", deadline_s=20
    )
    assert _health(site, name)["slow"] == [reported]
    agents.report_document(name, Document(benchmarks=(usual,)))
    waiting.until(
        lambda: _status(site)["slowCount"] == 0,
        "nobody slow any more",
        deadline_s=40,
        evidence=lambda: str(_status(site)),
    )
    waiting.until(
        lambda: not _health(site, name).keys() & {"relativeSpeed", "slow"},
        "its health as usual",
        deadline_s=20,
        evidence=lambda: str(_health(site, name)),
    )
    granted_rights.expect_used(site.plane.audit_log, __name__)
