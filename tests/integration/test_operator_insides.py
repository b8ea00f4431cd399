"""The inside of nodes as agents tell a real operator: what sources differ on, and who is slow."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from integration import command_line
from integration.operator_site import Floor, Json, Site
from railwright_agent.inside import Given
from railwright_agent.telling import Teller
from railwright_api import names
from railwright_operator.wiring import AGENT
from railwright_testbed import waiting
from railwright_testbed.operator_process import NAMESPACE
from railwright_topology.parts import Rates
from railwright_topology.sources import insides
from railwright_topology.sources.insides import Document
from worlds import machine_files, machines, shell
from worlds.machines import Machine

FABRIC = f"/apis/{names.API_VERSION}/{names.FABRICS}/{names.SINGLETON}"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
ACCOUNTS = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
MACHINE = machines.planted(Random(3))


class Agents:
    """Agents of simulated nodes, each with a planted machine's file system."""

    def __init__(self, site: Site, folder: Path) -> None:
        self._site = site
        self._folder = folder
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, node: str, machine: Machine, description: str = "") -> None:
        root = self._folder / node
        machine_files.write_sysfs(root, machine_files.sysfs(machine))
        (root / "token").write_text(self._token(node))
        command = [sys.executable, "-m", "railwright_agent", "tell", f"--root={root}"]
        command += [f"--operator={self._site.operator.url}", f"--token-file={root / 'token'}"]
        if description:
            (root / "own.yaml").write_text(description)
            command.append(f"--description={root / 'own.yaml'}")
        # What this machine itself has is none of the simulated nodes'.
        self._running.append(subprocess.Popen(command, env={"PATH": ""}))

    def tell(self, node: str, document: Document) -> None:
        """As its agent tells it, though nobody measured that."""
        file = self._folder / f"{node}.token"
        if not file.exists():
            file.write_text(self._token(node))
        Teller(self._site.operator.url, file, Given(self._folder)).tell(insides.written(document))

    def stop(self) -> None:
        for agent in self._running:
            agent.terminate()
            agent.wait(20)

    def _token(self, node: str) -> str:
        pod: dict[str, Any] = shell.pod(f"agent-{node}")
        pod["spec"] |= {"serviceAccountName": AGENT, "nodeName": node}
        made = self._site.admin.post(PODS, pod)["metadata"]
        bound = {"kind": "Pod", "apiVersion": "v1", "name": made["name"], "uid": made["uid"]}
        spec = {"audiences": [names.GROUP], "expirationSeconds": 600, "boundObjectRef": bound}
        asked = self._site.admin.post(f"{ACCOUNTS}/{AGENT}/token", {"spec": spec})
        return str(asked["status"]["token"])


@pytest.fixture
def agents(site: Site, floor: Floor, tmp_path: Path) -> Iterator[Agents]:
    with contextlib.suppress(subprocess.CalledProcessError):
        site.plane.kubectl("-n", NAMESPACE, "create", "serviceaccount", AGENT)
    started = Agents(site, tmp_path)
    yield started
    started.stop()
    pods = [f"agent-{node}" for node in floor.nodes]
    site.plane.kubectl("-n", NAMESPACE, "delete", "pods", "--ignore-not-found", "--now", *pods)


def _status(site: Site) -> Json:
    found: Json = site.admin.get(FABRIC).get("status", {})
    return found


def test_what_agents_see_is_on_the_fabric_and_so_is_what_they_contradict(
    site: Site, floor: Floor, agents: Agents
) -> None:
    one, other, *_ = floor.nodes
    address = MACHINE.gpus[0].address
    false = MACHINE.gpus[0].slot.numa + 7
    agents.start(one, MACHINE)
    agents.start(
        other,
        MACHINE,
        f"{{version: 1, kinds: [{{accelerators: [{{pci: '{address}', numa: {false}}}]}}]}}",
    )
    waiting.until(
        lambda: sum(each["nodes"] for each in _status(site).get("insides", [])) == 2,
        "the insides of two nodes",
        deadline_s=40,
        evidence=lambda: str(_status(site)),
    )
    status = _status(site)
    (kind,) = status["insides"]
    assert kind["found"] == "8 accelerators 10de:2330, 8 rails at 200 Gb/s, 2 front-end at 200 Gb/s"
    assert kind["unknown"] == ["how accelerators are linked beside PCIe"]
    (conflict,) = [each for each in status["conflicts"] if each["node"] == other]
    assert conflict["level"] == "numa"
    assert conflict["source"] == "description"
    assert f"by description its numa is {false}" in conflict["message"]


def test_a_node_whose_device_is_slower_than_most_is_on_the_fabric(
    site: Site, floor: Floor, agents: Agents
) -> None:
    usual = Rates("0000:17:00.0", "H100", "torch 9.9", 660 * 10**12, 29 * 10**11)
    slow = replace(usual, flop_per_s=403 * 10**12)
    name = floor.nodes[2]
    for node in floor.nodes:
        agents.tell(node, Document(rates=(slow if node == name else usual,)))
    waiting.until(
        lambda: _status(site).get("slow"),
        "a slow node",
        deadline_s=40,
        evidence=lambda: str(_status(site)),
    )
    status = _status(site)
    told = "0000:17:00.0 multiplies at 61 % of what most H100 do: 400 TFLOP/s of 660 TFLOP/s"
    assert status["slow"] == [{"node": name, "message": told}]
    assert (status["slowCount"], status["measuredNodes"]) == (1, 4)
    assert f"- {name}: {told}\n" in command_line.topology(site)
    agents.tell(name, Document(rates=(usual,)))
    waiting.until(
        lambda: _status(site)["slowCount"] == 0,
        "nobody slow any more",
        deadline_s=40,
        evidence=lambda: str(_status(site)),
    )
