"""Surveys: real controllers have real agents measure each other, and store the result. All agents
are on this machine, so all nodes are near each other.

It runs controllers of its own, as a survey is of all nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures import command_line, local_network
from integration import controllers, granted_rights, operator_site, surveyed
from integration.node_agents import NodeAgents
from integration.operator_site import FABRIC, Floor, Json, Site
from integration.surveyed import MACHINE, NODES, SOURCE, Rails
from railwright_controllers.surveys import stored
from railwright_controllers.watch import files
from railwright_testbed import waiting


@pytest.fixture(scope="module")
def ground() -> Iterator[Site]:
    with operator_site.opened() as site:
        yield site


@pytest.fixture(scope="module")
def floor(ground: Site) -> Iterator[Floor]:
    """Nodes without labels of a topology."""
    with operator_site.floor_on(ground, (NODES,)) as made:
        for node in made.nodes:
            surveyed.unlabel(ground, node)
        yield made


@pytest.fixture
def agents(ground: Site, tmp_path: Path) -> Iterator[NodeAgents]:
    started = NodeAgents(ground, tmp_path)
    yield started
    started.clear()


@pytest.fixture(scope="module")
def network() -> Iterator[str]:
    """The network of the nodes' rails."""
    with local_network.opened() as opened:
        yield opened


@pytest.fixture
def rails(floor: Floor, network: str) -> Rails:
    return Rails(floor, network)


def _reporting(status: Json) -> int:
    return int((status.get("agents") or {}).get("nodes", 0))


def test_unplaced_nodes_are_surveyed_once_and_result_is_kept(
    ground: Site, rails: Rails, agents: NodeAgents
) -> None:
    """Nodes without a topology source are measured, and the survey is stored."""
    _never(ground, rails, agents)
    agents.stop()

    # Without a source: agents poll, measure each other, and the Fabric has the result.
    ground.admin.patch(FABRIC, {"spec": {"probing": {"mode": "WhenUnknown"}}})
    surveyed.until_nodes(ground, "due", NODES)
    rails.start(agents)
    status = surveyed.until_status(
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
    assert ground.admin.get(surveyed.KEPT)["binaryData"].keys() == {stored.RESULT, files.PROGRESS}
    granted_rights.expect_used(ground.plane.audit_log, __name__)
    assert surveyed.probes(ground) >= NODES * (NODES - 1) / 2
    assert f"{SOURCE}: {NODES} nodes, measured {source['time']}" in command_line.topology(
        ground.plane
    )
    agents.stop()

    _another_leader(ground, rails, agents)
    _an_agent_dies(ground, rails, agents)


def _never(ground: Site, rails: Rails, agents: NodeAgents) -> None:
    """Agents report, and do not listen."""
    ground.admin.patch(
        FABRIC, {"spec": {"probing": {"mode": "Never", "networks": [rails.network]}}}
    )
    surveyed.until_nodes(ground, "due", 0)
    rails.start(agents)
    surveyed.until_status(ground, lambda status: _reporting(status) == NODES, "all agents", 60)
    assert not any(map(rails.listens, rails.floor.nodes))
    assert not surveyed.probes(ground)


def _another_leader(ground: Site, rails: Rails, agents: NodeAgents) -> None:
    """Controllers that start anew read the stored survey, and do not measure again."""
    controllers.start_again(ground)
    rails.start(agents)
    status = surveyed.until_status(
        ground, lambda status: _reporting(status) == NODES, "all agents again", 60
    )
    assert [each["source"] for each in status["sources"]] == [SOURCE]
    assert not any(map(rails.listens, rails.floor.nodes))
    assert not surveyed.probes(ground)


def _an_agent_dies(ground: Site, rails: Rails, agents: NodeAgents) -> None:
    """The Fabric names a node whose agent polled and then died, before it was measured."""
    (more,) = rails.floor.add(f"{rails.floor.name}-rack-0", 1)
    surveyed.unlabel(ground, more)
    surveyed.until_nodes(ground, "due", 1)
    agents.start(more, MACHINE, bind=rails.host(more))
    # The controllers wait 300 s for a due node that has not polled yet, before they name the node.
    surveyed.until_nodes(ground, "polling", 1, deadline_s=60)
    agents.kill(more)
    message = f"1 of 1 nodes that are to be measured have no agent that answers: {more}"
    surveyed.until_status(
        ground,
        lambda status: message in [each["message"] for each in status["problems"]],
        "the dead agent",
        120,
    )
    # The fixture stops the agent while its poll is open: it exits at once.
    agents.start(more, MACHINE, bind=rails.host(more))
    waiting.until(lambda: rails.listens(more), "the agent again", deadline_s=60)
