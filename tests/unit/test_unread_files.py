"""A restart while a file is invalid: what was published stays until the file is valid or gone."""

from __future__ import annotations

import json
from random import Random
from typing import cast

import pytest

from fixtures.office import Office, fabric
from fixtures.reporting import Raw
from railwright_controllers.report.node_healths import NodeHealthReporter
from railwright_controllers.watch.files import FilesRecord
from railwright_kube.client import Api
from railwright_topology.sources.formats import File
from railwright_watch import node_healths

CONF = "SwitchName=leaf Nodes=n[0-1]\n"
SOURCE = "site/topology.conf"


class Restarted:
    """Controllers that start beside a Fabric with these sources, and a file with this content."""

    def __init__(self, content: str, *sources: str) -> None:
        self.office = Office()
        self.topology = {"levels": [], "places": [{"domains": [], "nodes": "n[0-1]"}]}
        listed = [{"source": each, "provenance": "Imported", "nodes": 2} for each in sources]
        status = {"topology": self.topology, "sources": listed, "summary": "before"}
        self.office.add(fabric(version=2, status=status))
        for name in ("n0", "n1"):
            self.office.node(name)
        self.give(content)

    def give(self, content: str | None) -> None:
        """Change the ConfigMap; None deletes it."""
        self.give_all(*([] if content is None else [File("site", "topology.conf", content)]))

    def give_all(self, *files: File) -> None:
        """Change the ConfigMap; without files it is deleted."""
        held = next(iter(self.office.discovery._files_by_uid.values()), None)
        new = FilesRecord("uid", "site", files, rv=1) if files else None
        self.office.discovery.files_changed(held, new)

    async def report(self) -> Raw:
        await self.office.discovery.read_files()
        return await self.office.report()

    def problems(self) -> list[str]:
        return [each["message"] for each in self.office.status["problems"]]


async def test_invalid_file_that_was_a_source_keeps_what_was_published() -> None:
    restarted = Restarted("no topology\n", SOURCE)
    status = await restarted.report()
    assert status["topology"] == restarted.topology
    assert (status["summary"], [each["source"] for each in status["sources"]]) == (
        "before",
        [SOURCE],
    )
    assert f"all that was published stays until {SOURCE} is valid again" in restarted.problems()


async def test_file_that_is_valid_again_is_followed() -> None:
    restarted = Restarted("no topology\n", SOURCE)
    await restarted.report()
    restarted.give(CONF)
    status = await restarted.report()
    assert status["topology"] != restarted.topology
    assert status["summary"] == "1"
    assert restarted.problems() == []


@pytest.mark.parametrize(
    ("content", "source"),
    [
        ("no topology\n", "other/topology.conf"),
        ("no topology\n", "railwright labels"),
        (None, SOURCE),
    ],
    ids=["of another ConfigMap", "a label", "the file is gone"],
)
async def test_other_sources_that_are_gone_are_not_kept(content: str | None, source: str) -> None:
    restarted = Restarted("no topology\n", source)
    restarted.give(content)
    assert (await restarted.report())["sources"] == []


async def test_fabric_that_is_deleted_meanwhile_gets_all_of_it() -> None:
    restarted = Restarted("no topology\n", SOURCE)
    await restarted.report()
    restarted.office.remove()
    await restarted.office.recreate()
    status = await restarted.report()
    assert (status["topology"], status["summary"]) == (restarted.topology, "before")


async def test_file_that_is_not_read_at_all_keeps_nothing() -> None:
    """A ConfigMap with a README, and with a valid file that was removed."""
    restarted = Restarted("no topology\n", SOURCE)
    file = File("site", "README.md", "# Site")
    restarted.office.discovery.files_changed(
        next(iter(restarted.office.discovery._files_by_uid.values())),
        FilesRecord("uid", "site", (file,), rv=1),
    )
    assert (await restarted.report())["sources"] == []


async def test_hardware_of_an_invalid_file_stays_too() -> None:
    """Reports of hardware are sources of NodeHealths, not of the Fabric."""
    restarted = Restarted("no topology\n")
    body = {
        "metadata": {"name": "n0", "uid": "health", "resourceVersion": "7"},
        "spec": {"hardware": "8 H100", "sources": ["site/described"]},
    }
    restarted.office.informers.healths.absorb(node_healths.answered(body))
    assert (await restarted.report())["topology"] == restarted.topology
    assert restarted.office.discovery.unread_files() == (SOURCE,)


@pytest.mark.parametrize("was_gone", [False, True])
async def test_invalid_file_keeps_nothing_that_goes_later(was_gone: bool) -> None:
    """It was never a source, and the file that was one is removed. It was invalid from the start,
    or was gone and is given again."""
    restarted = Restarted(CONF, SOURCE)
    good = File("site", "topology.conf", CONF)
    bad = File("site", "ibnetdiscover.txt", "nonsense\n")
    restarted.give_all(good, bad)
    await restarted.report()
    if was_gone:
        restarted.give_all(good)
        await restarted.report()
        restarted.give_all(good, bad)
        await restarted.report()
    restarted.give_all(bad)
    restarted.office.node("n2")
    status = await restarted.report()
    assert (status["nodes"], status["sources"]) == (3, [])
    assert restarted.office.discovery.unread_files() == ()


async def test_source_that_was_there_once_is_not_missing_later() -> None:
    """A file was invalid at the start and its source is missing, until another file has it."""
    restarted = Restarted(CONF, "site/plan")
    bad = File("site", "topology.conf", "no topology\n")
    plan = File(
        "site", "plan.yaml", json.dumps({"version": 1, "tiers": ["a"], "domains": {"r0": "n0,n1"}})
    )
    restarted.give_all(bad)
    await restarted.report()
    assert restarted.office.discovery.unread_files() == (SOURCE,)
    restarted.give_all(bad, plan)
    await restarted.report()
    assert restarted.office.discovery.unread_files() == ()
    restarted.give_all(bad)
    await restarted.report()
    assert restarted.office.discovery.unread_files() == ()


async def test_file_that_turns_invalid_later_keeps_nothing_else() -> None:
    """Its last valid content is still known, so all else is followed."""
    restarted = Restarted(CONF, SOURCE)
    await restarted.report()
    restarted.give("no topology\n")
    restarted.office.node("n2")
    status = await restarted.report()
    assert status["nodes"] == 3
    assert status["summary"] == "1"


async def test_healths_stay_as_they_are_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    restarted = Restarted("no topology\n", SOURCE)
    await restarted.report()
    office = restarted.office
    reporter = NodeHealthReporter(
        cast("Api", office.store),
        healths=office.informers.healths,
        discovery=office.discovery,
        nodes=office.nodes,
        clock=lambda: 0.0,
        rng=Random(0),
    )
    looked: list[object] = []
    monkeypatch.setattr(reporter, "_changed", lambda *given: looked.append(given))
    assert office.discovery.is_caught_up
    await reporter.report()
    assert not looked
    restarted.give(CONF)
    await restarted.report()
    await reporter.report()
    assert looked
