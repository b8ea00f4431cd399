"""The network measured by itself: a real operator sends real agents to each other, and keeps what
they find. All agents are on this machine, so all nodes are near each other.

It runs an operator of its own: what it measures is of all nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from fixtures import local_network, machines
from integration import command_line, node_agents, operator_site
from integration.node_agents import NodeAgents
from integration.operator_site import Floor, Json, Site
from railwright_agent.__main__ import PORT
from railwright_api import names
from railwright_testbed import audit, waiting
from railwright_testbed.audit import Right
from railwright_testbed.operator_process import NAMESPACE

FABRIC = f"/apis/{names.API_VERSION}/{names.FABRICS}/{names.SINGLETON}"
KEPT = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{names.PROBES}"
SOURCE = f"{names.PROBES}/probes"
MACHINE = machines.planted(Random(3))
NODES = 4


@pytest.fixture(scope="module")
def ground() -> Iterator[Site]:
    with operator_site.opened() as site:
        yield site


@pytest.fixture(scope="module")
def floor(ground: Site) -> Iterator[Floor]:
    """Nodes that nobody labelled."""
    with operator_site.floor_on(ground, (NODES,)) as made:
        for node in made.nodes:
            _unlabel(ground, node)
        yield made


@pytest.fixture
def agents(ground: Site, tmp_path: Path) -> Iterator[NodeAgents]:
    started = NodeAgents(ground, tmp_path)
    yield started
    started.clear()


def _unlabel(site: Site, node: str) -> None:
    site.admin.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {names.LABEL_RACK: None}}})


@pytest.fixture(scope="module")
def network() -> Iterator[str]:
    """The network of the nodes' rails."""
    with local_network.opened() as opened:
        yield opened


@dataclass(frozen=True, slots=True)
class Rails:
    """Where each node's agent answers probes."""

    floor: Floor
    network: str

    def host(self, node: str) -> str:
        return local_network.address(self.network, self.floor.nodes.index(node) + 1)

    def start(self, agents: NodeAgents) -> None:
        for node in self.floor.nodes:
            agents.start(node, MACHINE, bind=self.host(node))

    def listens(self, node: str) -> bool:
        return node_agents.listens(self.host(node), PORT)


@pytest.fixture
def rails(floor: Floor, network: str) -> Rails:
    return Rails(floor, network)


def _status(site: Site) -> Json:
    found: Json = site.admin.get(FABRIC).get("status", {})
    return found


def _until(site: Site, holds: Callable[[Json], bool], what: str, deadline_s: float) -> Json:
    waiting.until(
        lambda: holds(_status(site)),
        what,
        deadline_s=deadline_s,
        evidence=lambda: f"{_status(site)} {site.operator.log()}",
    )
    return _status(site)


def _heard(status: Json) -> int:
    return int((status.get("agents") or {}).get("nodes", 0))


def _until_due(site: Site, nodes: int) -> None:
    """Agents that tell from then on hear that they are to stand by."""
    name = "railwright_survey_due_nodes"
    waiting.until(lambda: site.metrics(name) == {name: nodes}, f"{nodes} due", deadline_s=30)


def _probes(site: Site) -> float:
    return sum(site.metrics("railwright_probes_total").values())


def test_unplaced_nodes_are_surveyed_once_and_result_is_kept(
    ground: Site, rails: Rails, agents: NodeAgents
) -> None:
    """Nodes without a topology source are measured, and the survey is stored."""
    _never(ground, rails, agents)
    agents.stop()

    # When untold: they stand by, are sent to each other, and what they find is on the Fabric.
    ground.admin.patch(FABRIC, {"spec": {"probing": {"mode": "WhenUnknown"}}})
    _until_due(ground, NODES)
    rails.start(agents)
    status = _until(
        ground,
        lambda status: [each["source"] for each in status.get("sources", [])] == [SOURCE],
        "what was measured",
        180,
    )
    (source,) = status["sources"]
    assert source["provenance"] == "Measured"
    assert source["nodes"] == NODES
    assert source["time"].endswith("Z")
    assert status["problems"] == []
    assert ground.admin.get(KEPT)["binaryData"].keys() == {"probes.json.gz"}
    kept = Right("patch", "", "configmaps", "", NAMESPACE)
    assert kept in audit.used(ground.plane.audit_log, audit.OPERATOR)
    assert _probes(ground) >= NODES * (NODES - 1) / 2
    assert f"{SOURCE}: {NODES} nodes, measured {source['time']}" in command_line.topology(ground)
    agents.stop()

    _another_leader(ground, rails, agents)
    _an_agent_dies(ground, rails, agents)


def _never(ground: Site, rails: Rails, agents: NodeAgents) -> None:
    """Agents tell of their nodes, and nothing of theirs listens."""
    ground.admin.patch(
        FABRIC, {"spec": {"probing": {"mode": "Never", "networks": [rails.network]}}}
    )
    _until_due(ground, 0)
    rails.start(agents)
    _until(ground, lambda status: _heard(status) == NODES, "all agents", 60)
    assert not any(map(rails.listens, rails.floor.nodes))
    assert not _probes(ground)


def _another_leader(ground: Site, rails: Rails, agents: NodeAgents) -> None:
    """It knows what was measured, and measures nothing again."""
    operator_site.start_again(ground)
    rails.start(agents)
    status = _until(ground, lambda status: _heard(status) == NODES, "all agents again", 60)
    assert [each["source"] for each in status["sources"]] == [SOURCE]
    assert not any(map(rails.listens, rails.floor.nodes))
    assert not _probes(ground)


def _an_agent_dies(ground: Site, rails: Rails, agents: NodeAgents) -> None:
    """That of one more node, once it stands by and before it is measured."""
    (more,) = rails.floor.add(f"{rails.floor.name}-rack-0", 1)
    _unlabel(ground, more)
    _until_due(ground, 1)
    agents.start(more, MACHINE, bind=rails.host(more))
    waiting.until(lambda: rails.listens(more), "it stands by", deadline_s=60)
    agents.kill(more)
    message = f"1 of 1 nodes that are to be measured have no agent that answers: {more}"
    _until(
        ground,
        lambda status: message in [each["message"] for each in status["problems"]],
        "that it died",
        120,
    )
    # One that waits for an errand ends at once when it is asked to, which the fixture does.
    agents.start(more, MACHINE, bind=rails.host(more))
    waiting.until(lambda: rails.listens(more), "it stands by again", deadline_s=60)
