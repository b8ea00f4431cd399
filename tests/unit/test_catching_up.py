"""Controllers that start again wait for the agents that reported before."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fixtures.discovered_site import LOOK, Site4, document
from railwright_controllers import discovery
from railwright_controllers.discovery import AGENTS
from railwright_topology.wiring import WiringError
from railwright_watch.node_healths import HealthRecord


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports of agents count at once."""
    monkeypatch.setattr(discovery, "GATHERED_S", 0.0)


@pytest.mark.usefixtures("at_once")
async def test_new_leader_waits_for_agents_of_its_predecessor() -> None:
    """It has caught up once its fabric has the reports of the same agents; as many others, and
    those of nodes that are gone or not Ready, make no difference."""
    site = Site4()
    for name, sources in (("n0", ["site/x"]), ("n1", [AGENTS]), ("n2", [AGENTS]), ("n9", [AGENTS])):
        site.healths.append(HealthRecord(name, name, 1, name, content={"sources": sources}))
    unready = replace(site.nodes["n2"], ready=False)
    site.discovery.node_changed(site.nodes["n2"], unready)
    assert not site.discovery.is_caught_up
    await site.discovery.refresh()
    site.now_s += discovery.STARTING_S + 1
    site.discovery.due.clear()
    for name in ("n0", "n3"):
        await site.discovery.receive_report(name, document(LOOK))
    await site.gathered()
    assert not site.discovery.is_caught_up
    site.now_s = discovery.CAUGHT_UP_S
    with pytest.raises(WiringError):
        await site.discovery.receive_report("n1", "{}")
    await site.discovery.receive_report("n1", document(LOOK))
    assert not site.discovery.is_caught_up
    await site.gathered()
    assert site.discovery.is_caught_up
    assert site.discovery.found.reported == {"n0", "n1", "n3"}
    # A node that is deleted makes no difference any more.
    site.discovery.node_changed(site.nodes["n1"], None)
    await site.discovery.refresh()
    assert site.discovery.is_caught_up


@pytest.mark.usefixtures("at_once")
async def test_new_leader_waits_for_nodes_that_are_starting() -> None:
    """After a loss of power no node is Ready at first."""
    site = Site4()
    site.healths.append(HealthRecord("n0", "n0", 1, "n0", content={"sources": [AGENTS]}))
    ready, unready = site.nodes["n0"], replace(site.nodes["n0"], ready=False)
    site.discovery.node_changed(ready, unready)
    await site.discovery.refresh()
    assert not site.discovery.is_caught_up
    site.now_s += discovery.STARTING_S + 1
    assert site.discovery.is_caught_up
    site.discovery.node_changed(unready, ready)
    assert not site.discovery.is_caught_up
    await site.discovery.receive_report("n0", document(LOOK))
    await site.gathered()
    assert site.discovery.is_caught_up


async def test_new_leader_waits_for_five_minutes_at_most() -> None:
    site = Site4()
    site.healths.append(HealthRecord("n0", "n0", 1, "n0", content={"sources": [AGENTS]}))
    await site.discovery.refresh()
    assert not site.discovery.is_caught_up
    site.now_s += discovery.CAUGHT_UP_S + 1
    assert site.discovery.is_caught_up
