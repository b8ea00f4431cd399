"""The fabric follows labels and files; an invalid file keeps its last valid content."""

from __future__ import annotations

import asyncio
import gzip
import time
from dataclasses import replace

import pytest

from fixtures import observing
from fixtures.discovered_site import LOOK, OTHER, PLAIN, Site4, document
from railwright_controllers import discovery
from railwright_controllers.discovery import AgentSummary, Discovery
from railwright_controllers.watch.fabric import FabricCache
from railwright_controllers.watch.files import FilesRecord
from railwright_topology.relative_speed import RelativeSpeed
from railwright_topology.sources import labels
from railwright_topology.sources.formats import File
from railwright_topology.wiring import WiringError

BLOCK, RACK = labels.OWN_LEVELS
CONF = "SwitchName=s1 Nodes=n[0-1]\nSwitchName=s2 Nodes=n[2-3]\n"
SWAPPED = "SwitchName=s1 Nodes=n0,n2\nSwitchName=s2 Nodes=n1,n3\n"
BROKEN = "no topology\nat all\n"


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports of agents count at once."""
    monkeypatch.setattr(discovery, "GATHERED_S", 0.0)


BY_CONF = {"n0": ("s1",), "n1": ("s1",), "n2": ("s2",), "n3": ("s2",)}


async def test_topology_file_places_nodes_and_its_news_counts_at_once() -> None:
    """A changed file changes the domains in the next refresh."""
    site = Site4()
    site.give("topology.conf", CONF)
    assert await site.places() == BY_CONF
    assert site.discovery.found.fabric.levels == ("site/topology.conf tier 1",)
    site.give("topology.conf", SWAPPED)
    assert (await site.places())["n2"] == ("s1",)


async def test_invalid_file_is_refused_and_its_old_content_stays() -> None:
    """The problem has the line and the rule."""
    site = Site4()
    site.give("topology.conf", CONF)
    await site.places()
    site.give("topology.conf", BROKEN)
    assert await site.places() == BY_CONF
    assert site.problem.startswith("site/topology.conf, line 1: 'no topology' is no Key=value")
    site.give("topology.conf", CONF)
    assert await site.places() == BY_CONF
    assert site.problem == ""


async def test_never_readable_file_leaves_labels_in_force() -> None:
    """Without any valid content the labels of nodes count."""
    site = Site4(rack="r")
    site.give("topology.conf", BROKEN)
    assert set((await site.places()).values()) == {("r",)}
    assert "no Key=value" in site.problem


@pytest.mark.parametrize(
    ("name", "content", "rule"),
    [
        ("fabric.txt", CONF, "hccl.json, ibnetdiscover.txt"),
        ("topology.conf.gz", b"SwitchName=s1", "is no text"),
        ("topology.conf.gz", gzip.compress(CONF.encode(), mtime=0)[:-9], "ended before the end"),
        ("topology.conf", b"\xff\xfe\x00", "is no text"),
        ("plan.yaml", "a: &x [1]\nb: *x\n", "line 1: anchors and aliases are not read"),
    ],
)
async def test_invalid_topology_file_is_refused_by_name(
    name: str, content: str | bytes, rule: str
) -> None:
    site = Site4()
    site.give(name, content)
    assert set((await site.places()).values()) == {()}
    assert rule in site.problem


async def test_files_come_compressed_or_with_a_mark_of_the_byte_order() -> None:
    site = Site4()
    site.give("topology.conf.gz", gzip.compress(CONF.encode()))
    assert await site.places() == BY_CONF
    site.give("topology.conf", "\ufeff" + CONF)
    assert await site.places() == BY_CONF
    first, second = (f"{line}\n".encode() for line in CONF.splitlines())
    site.give("topology.conf.gz", gzip.compress(first) + gzip.compress(second))
    assert await site.places() == BY_CONF


async def test_a_relabelled_node_and_one_that_went_are_seen() -> None:
    site = Site4(rack="r1")
    assert set((await site.places()).values()) == {("r1",)}
    site.label("n3", rack="r2")
    assert (await site.places())["n3"] == ("r2",)
    site.discovery.node_changed(site.nodes["n0"], None)
    assert "n0" not in await site.places()


async def test_new_machine_of_an_old_name_is_the_new_one() -> None:
    """The new node object arrives before the deletion of the old one."""
    site = Site4(rack="r1")
    old = site.nodes["n0"]
    new = replace(old, uid="another", labels={RACK: "r9"})
    site.discovery.node_changed(None, new)
    site.discovery.node_changed(old, None)
    assert (await site.places())["n0"] == ("r9",)


async def test_failed_assembly_keeps_the_fabric_and_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = Site4(rack="r1")
    before = await site.places()

    def broken(*_: object) -> None:
        raise LookupError("a mistake of ours")

    with monkeypatch.context() as patched:
        patched.setattr(labels, "source_reports", broken)
        site.label("n3", rack="r2")
        assert await site.places() == before
        assert "the last fabric stays in use: LookupError" in site.discovery.found.problem
    site.label("n3", rack="r3")
    assert (await site.places())["n3"] == ("r3",)
    assert site.discovery.found.problem == ""


async def test_label_without_topology_changes_nothing() -> None:
    site = Site4(rack="r1")
    await site.places()
    before = site.discovery.found
    site.label("n3", rack="r1", driver="570")
    await site.places()
    assert site.discovery.found is before


async def test_nothing_is_put_together_again_where_nothing_changed() -> None:
    site = Site4(rack="r1")
    await site.places()
    before = site.discovery.found
    node = site.nodes["n0"]
    site.discovery.node_changed(node, replace(node, ready=False))
    await site.places()
    assert site.discovery.found is before


@pytest.mark.usefixtures("at_once")
async def test_report_of_an_agent_joins_the_fabric() -> None:
    site = Site4()
    await site.places()
    for node in ("n0", "n1"):
        assert await site.discovery.receive_report(node, document(LOOK))
    await site.gathered()
    found = site.discovery.found.fabric
    assert [*found.inventories] == ["n0", "n1"]
    assert found.inventories["n0"] is found.inventories["n1"]
    assert await site.discovery.receive_report("n1", document(OTHER))
    await site.gathered()
    after = site.discovery.found.fabric
    assert after.inventories["n0"] is found.inventories["n0"]
    assert after.inventories["n1"].parts[0].id == "npu"


@pytest.mark.usefixtures("at_once")
async def test_equal_nodes_of_different_speed_share_inventory() -> None:
    """Reports that differ only in benchmarks share one parsed object."""
    site = Site4()
    await site.places()
    await site.told_rates(n0=100, n1=101, n2=50, n3=102)
    await site.gathered()
    found = site.discovery.found.fabric
    assert len({id(hardware) for hardware in found.inventories.values()}) == 1
    assert found.relative_speeds == {"n2": RelativeSpeed(products=0.5)}


@pytest.mark.usefixtures("at_once")
async def test_restarted_agent_leaves_benchmarks_of_its_nodes() -> None:
    """What it tells first has none, and is the same on all nodes."""
    site = Site4()
    await site.places()
    await site.told_rates(n0=100, n1=101, n2=50, n3=102)
    for node in ("n2", "n1", "n0"):
        await site.discovery.receive_report(node, document(PLAIN))
    await site.gathered()
    assert site.discovery.found.fabric.relative_speeds == {"n2": RelativeSpeed(products=0.5)}
    await site.told_rates(n2=99)
    await site.gathered()
    assert not site.discovery.found.fabric.relative_speeds
    site.discovery.node_changed(site.nodes["n2"], None)
    await site.places()
    assert {*site.discovery.found.fabric.benchmarks} == {"n0", "n1", "n3"}


@pytest.mark.usefixtures("at_once")
async def test_a_device_that_is_measured_as_good_as_before_is_no_news() -> None:
    site = Site4()
    await site.places()
    await site.told_rates(n0=1000)
    await site.gathered()
    before = site.discovery.found
    await site.told_rates(n0=1005)
    for _ in range(3):  # What is due at once is done by then.
        await asyncio.sleep(0)
    assert not site.discovery.due.is_set()
    await site.discovery.refresh()
    assert site.discovery.found is before
    await site.told_rates(OTHER, n0=1005)
    await site.gathered()
    assert site.discovery.found.fabric.inventories["n0"].parts[0].id == "npu"


@pytest.mark.usefixtures("at_once")
async def test_absent_node_is_not_reported_and_removed_is_forgotten() -> None:
    """Reports of unknown nodes are refused, and those of deleted nodes are dropped."""
    site = Site4()
    assert not await site.discovery.receive_report("elsewhere", document(LOOK))
    assert await site.discovery.receive_report("n0", document(LOOK))
    await site.gathered()
    site.discovery.node_changed(site.nodes["n0"], None)
    await site.discovery.refresh()
    assert not site.discovery.found.fabric.inventories
    assert not site.discovery.found.fabric.remarks


@pytest.mark.usefixtures("at_once")
async def test_invalid_document_leaves_earlier_facts() -> None:
    """It raises with the rule, and the last report stays."""
    site = Site4()
    await site.discovery.receive_report("n0", document(LOOK))
    with pytest.raises(WiringError, match="agents: version: expected 1 or later"):
        await site.discovery.receive_report("n0", "{}")
    await site.gathered()
    assert site.discovery.found.fabric.inventories["n0"].parts[0].id == "gpu"


async def test_refused_document_of_a_silent_agent_is_no_problem() -> None:
    """It was uninstalled, or its node is busy with something else for good."""
    site = Site4()
    with pytest.raises(WiringError):
        await site.discovery.receive_report("n0", "{}")
    assert [node for node, _ in site.discovery.agents().refused] == ["n0"]
    site.now_s += discovery.SILENT_S + 1
    assert not site.discovery.agents().refused


async def test_documents_that_come_one_after_the_other_count_together() -> None:
    discovered = Discovery(FabricCache(), clock=time.monotonic)
    for name in ("n0", "n1"):
        discovered.node_changed(None, observing.node_record(name))
    await discovered.refresh()
    discovered.due.clear()
    before = discovered.found
    for name in ("n0", "n1"):
        await discovered.receive_report(name, document(LOOK))
    await discovered.refresh()
    assert discovered.found is before
    assert not discovered.due.is_set()


async def test_reporting_agents_count_and_silent_ones_are_named() -> None:
    site = Site4()
    for node in ("n0", "n1", "n2"):
        await site.discovery.receive_report(node, document(LOOK))
    site.now_s = discovery.SILENT_S + 1
    await site.discovery.receive_report("n1", document(LOOK))
    await site.discovery.receive_report("n2", document(OTHER))
    silent_s = discovery.SILENT_S + 1
    assert site.discovery.agents() == AgentSummary(3, ("n0",), oldest_age_s=silent_s)
    site.discovery.node_changed(site.nodes["n0"], None)
    site.now_s += 2.0
    assert site.discovery.agents() == AgentSummary(2, (), oldest_age_s=2.0)
    for node in ("n1", "n2"):
        site.discovery.node_changed(site.nodes[node], None)
    assert site.discovery.agents() == AgentSummary(0, ())


async def test_file_has_the_time_of_its_last_change_that_counts() -> None:
    """An invalid change does not update the time."""
    site = Site4()
    for content, written in ((CONF, "first"), (BROKEN, "second"), (SWAPPED, "third")):
        record = FilesRecord("uid", "site", (File("site", "topology.conf", content),), 1, written)
        site.discovery.files_changed(site.given, record)
        site.given = record
        await site.places()
        (read,) = site.discovery.found.files
        assert read.time == ("first" if content == BROKEN else written)
