"""The Fabric has the topology that jobs are placed by, also that of the last leader."""

from __future__ import annotations

import asyncio
import threading

import pytest

from fixtures.clos import wiring
from fixtures.office import Office, fabric, published_status
from railwright_controllers import discovery, file_reads
from railwright_controllers.discovery import AGENTS, CAUGHT_UP_S, SLOW_S
from railwright_controllers.file_reads import FileRead
from railwright_controllers.report import fabric as reports
from railwright_topology import networks
from railwright_topology.fabric import of as fabric_of
from railwright_topology.source_reports import Provenance, SourceReport
from railwright_topology.sources import hardware_documents
from railwright_topology.sources.formats import File
from railwright_topology.sources.hardware_documents import Document
from railwright_topology.wiring import WiringError

CABLES = [("n0 mlx5_0", "leaf"), ("n1 mlx5_0", "leaf")]


async def test_fabric_has_the_topology_that_jobs_are_placed_by() -> None:
    office = Office()
    for name in ("n0", "n1", "n2"):
        office.node(name, old="r0" if name != "n2" else "")
    places = [{"domains": [""], "nodes": "n2"}, {"domains": ["r0"], "nodes": "n[0-1]"}]
    level = {"level": "old", "oversubscription": "1.0", "domains": []}
    assert (await office.report())["topology"] == {"levels": [level], "places": places}


def wired(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two nodes with cables."""
    for name in ("n0", "n1"):
        office.node(name, old="r0")
    read = FileRead(File("site", "x", ""), (networks.of(wiring(CABLES)),))
    monkeypatch.setattr(office.discovery, "_read", (read,))


KEPT = {
    "levels": [{"level": "plan tier 1", "oversubscription": "3.0", "domains": []}],
    "places": [{"domains": ["without front-end"], "nodes": "n[0-1]"}],
}


def with_kept_topology(office: Office) -> None:
    office.add(fabric("old", version=2, status={"topology": KEPT}))
    for name in ("n0", "n1"):
        office.health(name, sources=[AGENTS])


async def test_new_leader_keeps_topology_that_agents_take_part_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their reports, once assembled, separate front-end cables from rails."""
    monkeypatch.setattr(discovery, "GATHERED_S", 0.0)
    office = Office()
    with_kept_topology(office)
    wired(office, monkeypatch)
    assert (await office.report())["topology"] == KEPT
    office.discovery.due.clear()
    for name in ("n0", "n1"):
        await office.discovery.receive_report(name, hardware_documents.written(Document()))
    assert (await office.report())["topology"] == KEPT
    await asyncio.wait_for(office.discovery.due.wait(), 5)
    (place,) = (await office.report())["topology"]["places"]
    assert place == {"domains": ["leaf"], "nodes": "n[0-1]"}


async def test_refused_reports_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents of another version: the new leader has caught up after a time, not at once."""
    monkeypatch.setattr(discovery, "GATHERED_S", 0.0)
    office = Office()
    with_kept_topology(office)
    wired(office, monkeypatch)
    for name in ("n0", "n1"):
        with pytest.raises(WiringError):
            await office.discovery.receive_report(name, "{}")
    assert (await office.report())["topology"] == KEPT
    office.now_s += CAUGHT_UP_S + 1
    assert (await office.report())["topology"] != KEPT


HOSTS = [f"n{number}" for number in range(8)]
RAILS = [(f"{host} mlx5_0", f"tor-{at // 4}") for at, host in enumerate(HOSTS)]
STORAGE = [(f"{host} mlx5_1", "storage") for host in HOSTS]
SPINE = [("spine", "tor-0"), ("spine", "tor-1")]


def restarted(monkeypatch: pytest.MonkeyPatch) -> Office:
    """A new leader before the reports of agents. The last one had them: the adapters of storage,
    which join all hosts, are front-end. Labels divide each rack in two."""
    labelled = SourceReport(
        "configured labels",
        Provenance.DECLARED,
        ({host: f"half-{at // 2}" for at, host in enumerate(HOSTS)},),
        names=("old",),
    )
    whole = networks.of(wiring(RAILS + STORAGE + SPINE))
    last = fabric_of(HOSTS, [labelled, networks.of(wiring(RAILS + SPINE))])
    office = Office()
    office.add(fabric("old", version=2, status=published_status(last)))
    for at, host in enumerate(HOSTS):
        office.health(host, sources=[AGENTS])
        office.node(host, old=f"half-{at // 2}")
    read = FileRead(File("site", "x", ""), (whole,))
    monkeypatch.setattr(office.discovery, "_read", (read,))
    return office


async def test_new_leader_keeps_cables_and_follows_labels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is published of cables stays; a rack label that changes is published at once."""
    office = restarted(monkeypatch)
    published = office.cache.published["topology"]
    assert (await office.report())["topology"] == published
    assert {level["level"] for level in published["levels"]} == {
        "old",
        "plan tier 1",
        "plan tier 2",
    }
    office.node("n0", old="half-1")
    after = (await office.report())["topology"]
    assert after["levels"] == published["levels"]
    assert after["places"] == [
        {"domains": ["spine", "tor-0", "half-0"], "nodes": "n1"},
        {"domains": ["spine", "tor-0", "half-1"], "nodes": "n[0,2-3]"},
        {"domains": ["spine", "tor-1", "half-2"], "nodes": "n[4-5]"},
        {"domains": ["spine", "tor-1", "half-3"], "nodes": "n[6-7]"},
    ]


async def test_host_with_cables_that_joins_is_placed_with_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its labels alone would place it beside its rack."""
    office = restarted(monkeypatch)
    published = office.cache.published["topology"]
    cables = [*RAILS, *STORAGE, *SPINE, ("n8 mlx5_0", "tor-1")]
    read = FileRead(File("site", "x", ""), (networks.of(wiring(cables)),))
    monkeypatch.setattr(office.discovery, "_read", (read,))
    office.node("n8", old="half-3")
    assert (await office.report())["topology"] == published
    office.now_s += CAUGHT_UP_S + 1
    places = (await office.report())["topology"]["places"]
    assert [each["nodes"] for each in places if "half-3" in each["domains"]] == ["n[6-8]"]


async def test_kept_topology_that_is_unreadable_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is of another version."""
    office = Office()
    unreadable = {"levels": [], "places": [{"domains": ["more"], "nodes": "n0"}]}
    office.add(fabric("old", version=2, status={"topology": unreadable}))
    office.health("n0", sources=[AGENTS])
    wired(office, monkeypatch)
    assert (await office.report())["topology"] == unreadable


async def test_new_leader_follows_labels_at_once() -> None:
    office = Office()
    with_kept_topology(office)
    office.node("n0", old="r0")
    (place,) = (await office.report())["topology"]["places"]
    assert place == {"domains": ["r0"], "nodes": "n0"}


async def test_first_topology_is_published_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    office = Office()
    office.health("n0", sources=[AGENTS])
    wired(office, monkeypatch)
    (place,) = (await office.report())["topology"]["places"]
    assert place["nodes"] == "n[0-1]"


async def test_new_leader_writes_no_fabric_before_it_has_assembled_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A large file takes longer to read than the interval of reports."""
    office = Office()
    await office.reporter.report()
    assert office.patches == 0
    with monkeypatch.context() as patched:
        patched.setattr(discovery, "_put_together", lambda *_, **__: 1 / 0)
        status = await office.report()
    (problem,) = status["problems"]
    assert problem["message"] == "the last fabric stays in use: ZeroDivisionError"
    assert not {"topology", "nodes"} & status.keys()
    office.discovery._again()
    assert {"topology", "nodes"} <= (await office.report()).keys()


async def test_levels_that_do_not_fit_are_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    office = Office()
    office.node("n0", old="r0")
    monkeypatch.setattr(reports, "TOPOLOGY_BYTES_MAX", 90)
    status = await office.report()
    assert status["topology"] == {"levels": [], "places": [{"domains": [], "nodes": "n0"}]}
    (problem,) = status["problems"]
    words = "levels are left out, as the Fabric would be too large: old"
    assert problem == {"key": "topology", "message": words}
    monkeypatch.setattr(reports, "TOPOLOGY_BYTES_MAX", 9)
    office.node("n1", old="r0")
    after = await office.report()
    assert after["topology"] == status["topology"]
    assert "do not fit the Fabric" in after["problems"][0]["message"]


async def test_read_that_hangs_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    office, goes_on = Office(), threading.Event()
    await office.report()
    office.discovery.due.set()
    monkeypatch.setattr(file_reads, "read_all", lambda *_: goes_on.wait(10))
    running = asyncio.create_task(office.discovery.run())
    try:
        for _ in range(2):  # The task begins, and so does its read.
            await asyncio.sleep(0)
        office.now_s += SLOW_S + 1
        await office.reporter.report()
        assert "for more than 60 s" in office.status["problems"][0]["message"]
    finally:
        goes_on.set()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
