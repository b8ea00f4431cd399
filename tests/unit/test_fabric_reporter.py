"""The Fabric: it exists, its status follows what was found, and the newest version wins."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

from fixtures import reporting
from fixtures.office import FABRIC, FABRIC_STATUS, Office, fabric
from railwright_api import names, routes
from railwright_api.fabric import Fabric
from railwright_controllers.discovery import AGENTS, CAUGHT_UP_S, SILENT_S
from railwright_controllers.report.fabric_reporter import FRESH_S, REPLACED_S
from railwright_controllers.watch.files import FilesRecord
from railwright_kube import errors
from railwright_kube.errors import RequestFailed
from railwright_scheduler.model.snapshot import Taint
from railwright_topology.parts import HardwareReport, Kind, Part
from railwright_topology.source_reports import Provenance
from railwright_topology.sources import hardware_documents
from railwright_topology.sources.formats import File
from railwright_topology.sources.hardware_documents import Document
from railwright_topology.wiring import WiringError

EMPTY = hardware_documents.written(Document())
FABRICS = routes.kind(names.FABRICS)
FAULTS = [errors.Unreachable("x"), errors.NotLeader("x")]


async def test_missing_fabric_is_created_and_then_reported() -> None:
    office = Office(is_missing=True)
    for name in ("n0", "n1"):
        office.node(name)
    await office.discovery.refresh()
    await office.reporter.report()
    created = office.store.objects[FABRIC]
    Fabric.model_validate(created)
    assert (created["metadata"]["name"], created["spec"]) == ("default", {})
    assert office.cache.held is not None
    assert (await office.report())["nodes"] == 2
    assert [verb for verb, _ in office.store.requests] == ["create", "patch"]


async def test_deleted_fabric_is_created_again_with_all_of_it() -> None:
    office = Office()
    office.node("n0", old="r0")
    status = await office.report()
    office.remove()
    await office.recreate()
    again = await office.report()
    assert again == status | {"freshness": {"checked": "2026-01-02T03:04:11Z"}}
    assert office.store.objects[FABRIC]["spec"] == {"levels": ["old"]}
    assert [verb for verb, _ in office.store.requests] == ["patch", "create", "patch"]


async def test_fabric_that_somebody_replaces_is_theirs() -> None:
    """``kubectl replace --force`` deletes and creates it."""
    office = Office()
    await office.report()
    office.remove()
    await office.reporter.report()
    assert office.store.count("create") == 0
    office.add(fabric("new", version=50))
    await office.report()
    office.now_s += REPLACED_S
    await office.report()
    assert office.store.objects[FABRIC]["spec"] == {"levels": ["new"]}
    assert office.store.count("create") == 0


async def test_fabric_deleted_during_its_write_is_created() -> None:
    """The response to the write does not restore the cached Fabric."""
    office = Office()
    office.while_patching(office.remove)
    await office.discovery.refresh()
    await office.reporter.report()
    assert office.cache.held is None
    office.store.meanwhile.clear()
    await office.recreate()
    assert "nodes" in await office.report()


async def test_fabric_that_someone_else_creates_stays(caplog: pytest.LogCaptureFixture) -> None:
    """The informer has not received it yet. That is no failure."""
    caplog.set_level(logging.INFO)
    office = Office()
    office.remove()
    theirs = fabric("rack", version=200, metadata={"uid": "theirs"})
    office.store.put(FABRIC, theirs)
    await office.discovery.refresh()
    await office.recreate()
    assert office.store.objects[FABRIC] == theirs
    assert office.store.count("create") == 1
    assert not caplog.messages
    office.add(theirs)
    await office.report()
    assert office.store.objects[FABRIC]["spec"] == {"levels": ["rack"]}
    assert office.status["nodes"] == 0


@pytest.mark.parametrize("fault", FAULTS)
async def test_fabric_that_cannot_be_created_is_created_later(fault: RequestFailed) -> None:
    office = Office(is_missing=True)
    office.store.refusals["create", FABRICS] = fault
    assert not await office.reporter.report()
    assert FABRIC not in office.store.objects
    office.store.refusals.clear()
    await office.reporter.report()
    assert FABRIC in office.store.objects


async def test_levels_that_a_person_sets_during_the_write_stay() -> None:
    office = Office()
    office.while_patching(lambda: office.add(fabric("new", version=2)))
    await office.discovery.refresh()
    await office.reporter.report()
    assert office.cache.levels == ("new",)
    office.store.meanwhile.clear()
    await office.report()
    assert office.status["nodes"] == 0
    assert office.store.objects[FABRIC]["spec"] == {"levels": ["new"]}


async def test_fabric_changed_while_it_is_rendered_is_written() -> None:
    """A large fabric takes seconds to render."""
    office = Office()

    def change() -> tuple[str, ...]:
        office.add(fabric("new", version=2))
        return ()

    office.reporter.unsurveyed = change
    assert (await office.report())["nodes"] == 0
    assert office.patches == 1


@pytest.mark.parametrize("fault", FAULTS)
async def test_write_that_fails_is_repeated(fault: RequestFailed) -> None:
    office = Office()
    office.store.refusals["patch", FABRIC_STATUS] = fault
    await office.discovery.refresh()
    await office.reporter.report()
    assert "status" not in office.store.objects[FABRIC]
    office.store.refusals.clear()
    status = await office.report()
    assert status["nodes"] == 0
    assert "checked" in status["freshness"]


async def test_status_that_cannot_be_rendered_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    office = Office()

    def broken() -> tuple[str, ...]:
        raise LookupError("a mistake of ours")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(office.reporter, "unsurveyed", broken)
        await office.discovery.refresh()
        await office.reporter.report()
        assert caplog.messages == ["status rendering failed"]
    assert (await office.report())["nodes"] == 0


async def test_unchanged_status_is_not_written_again() -> None:
    office = Office()
    await office.report()
    assert office.patches == 1
    for _ in range(3):
        office.now_s += FRESH_S / 4
        await office.report()
    assert office.patches == 1


async def test_reporter_ends_when_cancelled_at_a_change() -> None:
    """``asyncio.wait_for`` of Python 3.11 would go on."""
    office = Office()
    running = asyncio.create_task(office.reporter.run())
    for _ in range(3):  # The reporter waits for a change by then.
        await asyncio.sleep(0)
    office.discovery.refreshed.set()
    running.cancel()
    done, _ = await asyncio.wait((running,), timeout=5.0)
    assert done


async def test_unresolved_nodes_are_named_with_reason() -> None:
    """Problems of the Fabric name nodes without a domain and unreadable amounts."""
    office = Office()
    office.add(fabric("block", "rack", "nobodys", version=2))
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


async def test_node_kept_by_control_plane_needs_no_domain() -> None:
    """Nobody describes where it is, so the finding would never go away."""
    office = Office()
    office.add(fabric("railwright.dev/rack", version=2))
    office.node("a", unread=None, taints=(), **{names.LABEL_RACK: "r"})
    office.node("control", taints=(Taint(names.CONTROL_PLANE, "", "NoSchedule"),))
    status = await office.report()
    assert status["nodes"] == 2
    assert status["problems"] == []
    assert not any(each["remarks"] for each in status["sources"])
    office.node("control")
    status = await office.report()
    assert [each["node"] for each in status["problems"]] == ["control"]
    assert "the first is control" in str([each["remarks"] for each in status["sources"]])


async def test_first_problems_are_named_and_all_counted() -> None:
    """The list is bounded, the count is not."""
    office = Office()
    office.add(fabric("rack", version=2))
    office.node("a", rack="r")
    for number in range(40):
        office.node(f"n{number:02d}")
    status = await office.report()
    assert [each["node"] for each in status["problems"]] == [f"n{n:02d}" for n in range(16)]
    assert status["problemCount"] == 40


async def test_silent_agents_are_one_problem_and_one_write() -> None:
    office = Office()
    report = HardwareReport("sysfs", Provenance.SEEN, (Part("gpu", Kind.ACCELERATOR),))
    document = hardware_documents.written(Document((report,)))
    for name in ("n1", "n2", "n3", "n4", "n5"):
        office.node(name)
        await office.discovery.receive_report(name, document)
    status = await office.report()
    assert status["agents"] == {"nodes": 5, "silent": 0}
    office.now_s = SILENT_S + 1
    await office.discovery.receive_report("n1", document)
    status = await office.report()
    assert status["agents"] == {"nodes": 5, "silent": 4}
    assert status["problems"] == [
        {
            "key": "agents",
            "message": "4 of 5 agents sent nothing for 15 minutes, their last reports stay: "
            "n2, n3, n4 and 1 more",
        }
    ]
    before = office.patches
    office.now_s += FRESH_S - 1
    await office.discovery.receive_report("n1", document)
    await office.report()
    assert office.patches == before


async def test_agent_with_refused_documents_is_named_with_rule() -> None:
    office = Office()
    for name in ("n1", "n2"):
        office.node(name)
        with pytest.raises(WiringError):
            await office.discovery.receive_report(name, "{}")
    assert not await office.discovery.receive_report("gone", "{}")
    office.now_s = SILENT_S - 1
    status = await office.report()
    assert "agents" not in status
    ((key, message),) = (each.values() for each in status["problems"])
    assert key == "agents"
    assert message.startswith("the report of n1 is invalid: agents: ")
    assert message.endswith("; 1 more")
    for name in ("n1", "n2"):
        await office.discovery.receive_report(name, EMPTY)
    status = await office.report()
    assert (status["agents"], status["problems"]) == ({"nodes": 2, "silent": 0}, [])


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
    office.add(reporting.raw_object("default", version=2, status={"agents": agents}))
    for name in ("n0", "n1"):
        office.node(name)
        office.health(name, sources=[AGENTS])
    assert (await office.report())["agents"] == agents
    await office.discovery.receive_report("n0", EMPTY)
    status = await office.report()
    assert status["agents"] == agents
    second = Office()
    second.add(office.store.objects[FABRIC])
    second.node("n1")
    second.health("n1", sources=[AGENTS])
    await second.report()
    assert not second.discovery.is_caught_up
    second.now_s += CAUGHT_UP_S + 1
    assert "agents" not in await second.report()


async def test_annotated_fabric_is_written_on() -> None:
    """It has another version, and else nothing new."""
    office = Office()
    office.add(fabric("old", version=2, metadata={"annotations": {"owner": "site"}}))
    assert (await office.report())["nodes"] == 0
