"""Queues and the fabric: the newest version wins, what is gone stays gone, statuses follow."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from fixtures import reporting
from fixtures.office import FABRICS, QUEUES, Office, fabric
from railwright_api import routes
from railwright_kube import errors, paths
from railwright_kube.errors import RequestFailed
from railwright_operator.discovery import CAUGHT_UP_S, SILENT_S
from railwright_operator.watch.files import FilesRecord
from railwright_operator.watch.site import Site
from railwright_topology.parts import HardwareReport, Kind, Part
from railwright_topology.source_reports import Provenance
from railwright_topology.sources import hardware_documents
from railwright_topology.sources.formats import File
from railwright_topology.sources.hardware_documents import Document
from railwright_topology.wiring import WiringError


async def test_a_queue_that_goes_while_another_is_written_ends_nothing() -> None:
    office = Office()
    gone = reporting.raw_object("b")
    office.while_patching(QUEUES, "a", lambda: office.remove(QUEUES, gone))
    await office.report()
    assert office.site.queues == ("a",)
    assert office.store.count("patch", "fabrics") == 1


async def test_queue_deleted_during_its_write_stays_deleted() -> None:
    """The response to the write does not restore the cached queue."""
    office = Office()
    gone = reporting.raw_object("a")
    office.while_patching(QUEUES, "a", lambda: office.remove(QUEUES, gone))
    await office.reporter.report()
    assert office.site.queues == ("b",)


async def test_levels_that_a_person_sets_during_the_write_stay() -> None:
    office = Office()
    newer = fabric("new", version=2)
    office.while_patching(FABRICS, "default", lambda: cast("None", office.add(FABRICS, newer)))
    await office.discovery.refresh()
    await office.reporter.report()
    assert office.site.levels == ("new",)
    office.store.meanwhile.clear()
    await office.report()
    assert office.store.objects[routes.one(FABRICS, "default")]["status"]["nodes"] == 0


@pytest.mark.parametrize("fault", [errors.Unreachable("x"), errors.NotLeader("x")])
async def test_a_write_that_fails_leaves_the_others(fault: RequestFailed) -> None:
    office = Office()
    office.store.refusals["patch", paths.status(routes.one(QUEUES, "a"))] = fault
    await office.report()
    assert office.store.objects[routes.one(QUEUES, "b")]["status"] == {
        "waiting": 0,
        "running": 0,
    }


async def test_unreadable_object_does_not_affect_others() -> None:
    office = Office()
    del office.store.objects[routes.one(QUEUES, "a")]
    strange: Any = reporting.raw_object("c", status="none")
    reporting.set_object(office.site, QUEUES, strange)
    await office.report()
    assert "status" in office.store.objects[routes.one(QUEUES, "b")]
    assert "status" in office.store.objects[routes.one(FABRICS, "default")]


async def test_unchanged_statuses_are_not_written_again() -> None:
    office = Office()
    await office.report()
    assert office.store.count("patch") == 3
    await office.report()
    assert office.store.count("patch") == 3


async def test_unresolved_nodes_are_named_with_reason() -> None:
    """Problems of the Fabric name nodes without a domain and unreadable amounts."""
    office = Office()
    office.add(FABRICS, fabric("block", "rack", "nobodys", version=2))
    office.node("n3", block="b1", rack="r1")
    office.node("n2", rack="r1")
    office.node("n1", unread={"nvidia.com/gpu": "'-1' is not a whole number"}, block="b1", rack="")
    status = await office.report()
    unsaid = "no source has the domain of this node at this level"
    assert [(each["node"], each["key"], each["message"]) for each in status["problems"]] == [
        ("n1", "rack", f"the label is empty: {unsaid}"),
        (
            "n1",
            "nvidia.com/gpu",
            "'-1' is not a whole number; the last value that could be read, 8, counts",
        ),
        ("n2", "block", unsaid),
        ("n2", "rack", unsaid),
    ]
    assert [(each["level"], each["count"], each["largest"]) for each in status["domains"]] == [
        ("block", 1, 2),
        ("rack", 1, 1),
    ]
    assert status["summary"] == "1 > 1"


async def test_first_problems_are_named_and_all_counted() -> None:
    """The list is bounded, the count is not."""
    office = Office()
    office.add(FABRICS, fabric("rack", version=2))
    office.node("a", rack="r")
    for number in range(40):
        office.node(f"n{number:02d}")
    status = await office.report()
    assert [each["node"] for each in status["problems"]] == [f"n{n:02d}" for n in range(16)]
    assert status["problemCount"] == 40


def test_a_queue_made_again_outlives_the_late_news_of_the_first() -> None:
    site = Site()
    reporting.set_object(
        site, QUEUES, reporting.raw_object("a", version=5, metadata={"uid": "second"})
    )
    first = reporting.raw_object("a", version=4, metadata={"uid": "first"})
    reporting.set_object(site, QUEUES, first, gone=True)
    assert site.queues == ("a",)


async def test_silent_agents_are_one_problem_and_one_write() -> None:
    office = Office()
    report = HardwareReport("sysfs", Provenance.SEEN, (Part("gpu", Kind.ACCELERATOR),))
    for name in ("n1", "n2", "n3", "n4", "n5"):
        office.node(name)
        await office.discovery.receive_report(name, hardware_documents.written(Document((report,))))
    status = await office.report()
    assert status["agents"] == {"nodes": 5, "silent": 0}
    office.now_s = SILENT_S + 1
    await office.discovery.receive_report("n1", hardware_documents.written(Document((report,))))
    status = await office.report()
    assert status["agents"] == {"nodes": 5, "silent": 4}
    assert status["problems"] == [
        {
            "key": "agents",
            "message": "4 of 5 agents sent nothing for 15 minutes, their last reports stay: "
            "n2, n3, n4 and 1 more",
        }
    ]
    before = office.store.count("patch")
    office.now_s += 60
    await office.discovery.receive_report("n1", hardware_documents.written(Document((report,))))
    await office.report()
    assert office.store.count("patch") == before


async def test_agent_with_refused_documents_is_named_with_rule() -> None:
    office = Office()
    for name in ("n1", "n2"):
        office.node(name)
        with pytest.raises(WiringError):
            await office.discovery.receive_report(name, "{}")
    assert not await office.discovery.receive_report("gone", "{}")
    office.now_s = SILENT_S - 1
    status = await office.report()
    assert status["agents"] == {"nodes": 2, "silent": 0}
    ((key, message),) = (each.values() for each in status["problems"])
    assert key == "agents"
    assert message.startswith("the report of n1 is invalid: agents: ")
    assert message.endswith("; 1 more")
    for name in ("n1", "n2"):
        await office.discovery.receive_report(name, hardware_documents.written(Document(())))
    assert not (await office.report())["problems"]


async def test_reason_for_unmeasured_nodes_is_published() -> None:
    office = Office()
    office.unsurveyed = ("no agents",)
    status = await office.report()
    assert status["problems"] == [{"key": "probing", "message": "no agents"}]


async def test_each_source_is_published_with_its_time() -> None:
    office = Office()
    for name in ("a", "b", "c"):
        office.node(name, old="r")
    tiers = [{"domains": {"near a": ["a", "b"], "near c": ["c"]}}]
    measured = {"2026-01-02T03:04:05Z": ["a"], "2026-01-01T00:00:00Z": ["b", "c"]}
    survey = json.dumps({"version": 1, "tiers": tiers, "measured": measured})
    files = (
        File("site", "probes.json", survey),
        File("site", "topology.conf", "SwitchName=s Nodes=a,b,c"),
    )
    time = "2026-03-03T03:03:03Z"
    office.discovery.files_changed(None, FilesRecord("uid", "site", files, 1, time))
    await office.discovery.read_files()
    status = await office.report()
    assert {each["source"]: each.get("time") for each in status["sources"]} == {
        "configured labels": None,
        "site/topology.conf": time,
        "site/probes": "2026-01-01T00:00:00Z",
    }
    assert None not in [value for each in status["sources"] for value in each.values()]


async def test_second_take_over_waits_for_agents_again() -> None:
    """Leaders that change within minutes: none takes a fabric of few agents for the whole one."""
    office = Office()
    agents = {"nodes": 40, "silent": 1}
    stated = reporting.raw_object("default", version=2, status={"agents": agents})
    office.add(FABRICS, stated)
    for name in ("n0", "n1"):
        office.node(name)
    assert (await office.report())["agents"] == agents
    await office.discovery.receive_report("n0", hardware_documents.written(Document()))
    status = await office.report()
    assert status["agents"] == agents
    second = Office()
    second.add(FABRICS, office.store.objects[routes.one(FABRICS, "default")])
    await second.report()
    assert not second.discovery.is_caught_up
    second.now_s += CAUGHT_UP_S + 1
    assert "agents" not in await second.report()
