"""What agents reported to the last leader stays published until they have reported to the new one.

``discovery.CAUGHT_UP_S`` bounds how long that takes.
"""

from __future__ import annotations

import copy
import itertools
from dataclasses import replace

import pytest

from fixtures import agent_reports
from fixtures.agent_reports import CABLES, NODES, ODD
from fixtures.clos import wiring
from fixtures.office import FABRIC, Office
from fixtures.reporting import Raw
from railwright_controllers.discovery import AGENTS, CAUGHT_UP_S, SILENT_S, STARTING_S
from railwright_controllers.file_reads import FileRead
from railwright_controllers.report.fabric_reporter import FRESH_S
from railwright_topology import networks
from railwright_topology.parts import HardwareReport
from railwright_topology.source_reports import Provenance
from railwright_topology.sources.formats import File
from railwright_topology.sources.hardware_documents import Document
from railwright_topology.wiring import WiringError

SILENT = NODES[-1]
"""The node whose agent sends nothing any more."""


class Leader(Office):
    """Controllers beside five nodes with cables or without, that start with the Fabric and the
    NodeHealths that others wrote."""

    def __init__(self, *, cabled: bool, published: Raw | None = None, but: str = "") -> None:
        super().__init__()
        if published is not None:
            newest = int(published["metadata"]["resourceVersion"])
            self.store._versions = itertools.count(newest + 1)
            self.add(copy.deepcopy(published))
        for name in NODES:
            if name != but:
                self.node(name, old="r0" if name in NODES[:2] else "r1")
        network = networks.of(wiring(CABLES))
        if cabled:
            self.discovery._read = (FileRead(File("site", "x", ""), (network,)),)

    async def receive(self, *nodes: str) -> Raw:
        """Receive the reports of these agents; return the status that has them."""
        for node in nodes:
            await self.discovery.receive_report(node, agent_reports.written(node))
        self.discovery._again()
        return await self.report()

    @property
    def published(self) -> Raw:
        return self.store.objects[FABRIC]


async def test_few_agents_that_reported_just_before_are_awaited() -> None:
    """The count in the Fabric does not say which they were."""
    first = Leader(cabled=False)
    before = facts(await first.receive(*NODES[:2]))
    leader = restarted(first.published, cabled=False, healthy=False)
    assert facts(await leader.receive(*NODES[2:4])) == before
    assert (await leader.receive("n0", "n1", "n4"))["measuredNodes"] == 5


async def published(*, cabled: bool) -> Raw:
    """The Fabric of a leader that has run for a while."""
    first = Leader(cabled=cabled)
    await first.receive(*NODES)
    first.now_s += SILENT_S + 1
    with pytest.raises(WiringError):
        await first.discovery.receive_report("n0", "{}")
    await first.receive(*(node for node in NODES if node not in ("n0", SILENT)))
    status = first.status
    assert all(status[name] for name in ("hardware", "slow", "conflicts", "agents"))
    assert (status["rails"]["nodes"], status["rails"]["aligned"]) == (5, 4)
    assert {each["key"] for each in status["problems"]} == {"agents", "hardware"}
    return first.published


def facts(status: Raw) -> Raw:
    """All but when the sources were compared."""
    return status | {"freshness": status["freshness"].get("oldestReport")}


def restarted(fabric: Raw, *, cabled: bool, but: str = "", healthy: bool = True) -> Leader:
    leader = Leader(cabled=cabled, published=fabric, but=but)
    for name in NODES if healthy else ():
        leader.health(name, sources=[AGENTS])
    return leader


@pytest.mark.parametrize("healthy", [True, False], ids=["healths", "no health written yet"])
@pytest.mark.parametrize("cabled", [True, False], ids=["cables", "labels"])
async def test_new_leader_keeps_all_that_agents_reported(cabled: bool, healthy: bool) -> None:
    """From its first report on, while they report one by one."""
    fabric = await published(cabled=cabled)
    before = facts(fabric["status"])
    leader = restarted(fabric, cabled=cabled, healthy=healthy)
    assert facts(await leader.report()) == before
    for node in NODES[:-1]:
        leader.now_s += FRESH_S
        assert facts(await leader.receive(node)) == before
    leader.now_s += FRESH_S
    after = await leader.receive(NODES[-1])
    changed = {"agents", "problems", "problemCount", "freshness"}
    assert {name for name in before if facts(after)[name] != before[name]} == changed
    assert [each["key"] for each in after["problems"]] == ["hardware"]
    assert after["agents"] == {"nodes": 5, "silent": 0}


@pytest.mark.parametrize("cabled", [True, False], ids=["cables", "labels"])
async def test_facts_of_deleted_nodes_do_not_stay(cabled: bool) -> None:
    """Those of other nodes do."""
    fabric = await published(cabled=cabled)
    before = fabric["status"]
    status = await restarted(fabric, cabled=cabled, but=ODD).report()
    gone = ("slow", "conflicts", "slowCount", "conflictCount")
    assert [status[name] for name in gone] == [[], [], 0, 0]
    assert status["rails"] == {"nodes": 4, "aligned": 4, "miscabled": []}
    kinds = [each for each in before["hardware"] if each["first"] != ODD]
    assert status["hardware"] == kinds
    assert [each["key"] for each in status["problems"]] == ["agents", "agents"]
    assert status["nodes"] == 4
    assert ODD not in str({**status, "topology": None})


async def test_topology_stays_while_a_node_that_got_ready_is_awaited() -> None:
    """The cables changed while there were no controllers. Once agents have reported, their domains
    count, also while the agent of a node that was not Ready is awaited."""
    fabric = await published(cabled=True)
    topology = fabric["status"]["topology"]
    new = copy.deepcopy(topology)
    for place in topology["places"]:
        place["domains"][0] = "before"
    leader = restarted(fabric, cabled=True)
    ready = leader.nodes[SILENT]
    unready = replace(ready, ready=False)
    leader.discovery.node_changed(ready, unready)
    assert (await leader.receive(*NODES[:-1]))["topology"] == topology
    leader.now_s += STARTING_S + 1
    assert (await leader.report())["topology"] == new
    leader.discovery.node_changed(unready, ready)
    assert not leader.discovery.is_caught_up
    assert (await leader.report())["topology"] == new


async def test_agents_that_never_report_again_are_waited_for_in_vain() -> None:
    fabric = await published(cabled=True)
    leader = restarted(fabric, cabled=True)
    await leader.receive("n0")
    leader.now_s += CAUGHT_UP_S + 1
    status = await leader.report()
    assert (status["agents"], status["measuredNodes"]) == ({"nodes": 1, "silent": 0}, 1)
    assert (status["slow"], status["conflicts"]) == ([], [])


async def test_fabric_that_nobody_wrote_gets_reports_at_once() -> None:
    """It was deleted while there were no controllers."""
    leader = Leader(cabled=True)
    for name in NODES:
        leader.health(name, sources=[AGENTS])
    status = await leader.receive("n0")
    assert (status["measuredNodes"], "agents" in status) == (1, False)


@pytest.mark.parametrize("gone", ["", "n3"])
async def test_node_without_an_agent_is_waited_for_only_if_it_had_one(gone: str) -> None:
    """The last process counted four agents, and n4 has none. The NodeHealth of a node that is gone
    went with it, and one agent's reports were never valid."""
    first = Leader(cabled=False)
    with pytest.raises(WiringError):
        await first.discovery.receive_report(SILENT, "{}")
    await first.receive(*NODES[:4])
    leader = restarted(first.published, cabled=False, but=gone, healthy=False)
    left = [node for node in NODES[:4] if node != gone]
    for name in left:
        leader.health(name, sources=[AGENTS])
    status = await leader.receive(*left)
    assert leader.discovery.is_caught_up
    assert status["measuredNodes"] == len(left)


async def test_health_of_a_node_that_is_gone_stands_for_no_other() -> None:
    """The last process had not written that of n2, whose agent it counted, and n3 went."""
    first = Leader(cabled=False)
    await first.receive(*NODES[:4])
    leader = restarted(first.published, cabled=False, but="n3", healthy=False)
    for name in ("n0", "n1", "n3"):
        leader.health(name, sources=[AGENTS])
    await leader.receive("n0", "n1")
    assert not leader.discovery.is_caught_up


async def test_problem_of_many_nodes_stays_without_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also if its message is cut: it still says that other nodes have it too."""
    same = HardwareReport("sysfs", Provenance.SEEN, (), remarks=("x" * 5000,))
    monkeypatch.setattr(agent_reports, "of", lambda _, **__: Document((same,)))
    first = Leader(cabled=False)
    before = (await first.receive(*NODES))["problems"]
    assert before[0]["node"] == "n0"
    assert before[0]["message"].endswith("; the same on 4 more")
    leader = restarted(first.published, cabled=False, but="n0")
    assert (await leader.report())["problems"] == before
