"""``status.freshness`` of the Fabric, and the age of the last report."""

from __future__ import annotations

import asyncio

import pytest

from fixtures.office import FABRIC_STATUS, Office, fabric
from fixtures.shell import until
from railwright_api.fabric import FabricStatus
from railwright_controllers.report.fabric_reporter import FRESH_S
from railwright_kube.errors import ConflictError
from railwright_topology.sources import hardware_documents
from railwright_topology.sources.hardware_documents import Document

EMPTY = hardware_documents.written(Document())


async def test_freshness_is_written_once_in_a_minute() -> None:
    """Also when nothing else changes, and not with each change."""
    office = Office()
    written: list[tuple[int, int, str]] = []
    for second in range(0, 300, 5):
        office.now_s = float(second)
        if second == 100:
            office.node("n0")
            office.discovery._again()
        status = await office.report()
        if office.patches > len(written):
            written.append((second, status["nodes"], status["freshness"]["checked"][-6:]))
    assert written == [
        (0, 0, "04:05Z"),
        (60, 0, "05:05Z"),
        (100, 1, "05:05Z"),
        (120, 1, "06:05Z"),
        (180, 1, "07:05Z"),
        (240, 1, "08:05Z"),
    ]


async def test_old_cache_is_a_problem_and_not_fresh() -> None:
    """A person who watches the freshness sees that a watch fails."""
    office = Office()
    office.late = ("nothing was received of Nodes for more than 3 minutes",)
    status = await office.report()
    assert "freshness" not in status
    assert [each["message"] for each in status["problems"]] == [*office.late]
    office.late = ()
    assert "checked" in (await office.report())["freshness"]


async def test_fabric_that_is_replaced_has_its_freshness_at_once() -> None:
    """`kubectl replace --force` between two reports."""
    office = Office()
    office.node("n0")
    await office.report()
    office.remove()
    replaced = fabric("new", version=50)
    replaced["metadata"]["uid"] = "another"
    office.add(replaced)
    office.now_s += 5.0
    assert (await office.report())["freshness"] == {"checked": "2026-01-02T03:04:10Z"}


async def test_refused_freshness_is_written_with_the_next_report() -> None:
    office = Office()
    await office.report()
    office.now_s = FRESH_S
    conflict = ConflictError(409, "Conflict", message="another version")
    office.store.refusals["patch", FABRIC_STATUS] = conflict
    assert (await office.report())["freshness"] == {"checked": "2026-01-02T03:04:05Z"}
    office.store.refusals.clear()
    office.now_s += 5.0
    assert (await office.report())["freshness"] == {"checked": "2026-01-02T03:05:10Z"}


async def test_oldest_report_is_that_of_the_agent_silent_longest() -> None:
    """Without agents there is none."""
    office = Office()
    for name in ("n0", "n1"):
        office.node(name)
    assert (await office.report())["freshness"] == {"checked": "2026-01-02T03:04:05Z"}
    for at_s, name in ((10.0, "n0"), (20.0, "n1"), (50.0, "n0")):
        office.now_s = at_s
        await office.discovery.receive_report(name, EMPTY)
    assert "oldestReport" not in (await office.report())["freshness"]
    office.now_s = FRESH_S
    assert (await office.report())["freshness"] == {
        "checked": "2026-01-02T03:05:05Z",
        "oldestReport": "2026-01-02T03:04:25Z",
    }
    FabricStatus.model_validate(office.status)
    for name in ("n0", "n1"):
        office.discovery.node_changed(office.nodes.pop(name), None)
    office.now_s += FRESH_S
    assert (await office.report())["freshness"] == {"checked": "2026-01-02T03:06:05Z"}


async def test_new_leader_writes_freshness_with_its_first_report() -> None:
    """Not before it has assembled a fabric."""
    office = Office()
    kept = {"checked": "2026-01-02T03:00:00Z", "oldestReport": "2026-01-02T02:59:00Z"}
    office.add(fabric("old", version=2, status={"freshness": kept}))
    await office.reporter.report()
    assert office.status["freshness"] == kept
    assert (await office.report())["freshness"] == {"checked": "2026-01-02T03:04:05Z"}


async def test_age_of_a_report_grows_until_it_is_completed() -> None:
    office, goes_on = Office(), asyncio.Event()
    office.now_s = 100.0
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(office.reporter, "report", goes_on.wait)
        running = asyncio.create_task(office.reporter.run())
        try:
            await until(lambda: office.reporter.completed_age_s() == 0.0, "the start")
            office.discovery.refreshed.set()
            await until(lambda: not office.discovery.refreshed.is_set(), "a report")
            office.now_s += 130.0
            assert office.reporter.completed_age_s() == 130.0
            goes_on.set()
            await until(lambda: office.reporter.completed_age_s() == 0.0, "its end")
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
