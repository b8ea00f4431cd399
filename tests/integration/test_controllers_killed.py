"""The controllers are killed around their reads and writes while agents report: afterwards all is
published as without a kill, and no version of an object lacked a fact that an earlier one had."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path

import pytest

from fixtures import agent_reports, office, proxy
from fixtures.agent_reports import NODES
from fixtures.office import Office
from integration import controllers, failpoints, operator_site
from integration.failpoints import Failpoint, around
from integration.node_agents import NodeAgents
from integration.operator_site import FABRIC, NODE_GRACE_S, ROOT, Json, Site
from railwright_agent.reporting import ReportRefusedError
from railwright_api import names
from railwright_controllers.report import node_healths
from railwright_controllers.watch.files import FilesRecord
from railwright_testbed import (
    ControlPlane,
    ControlPlaneOptions,
    NodeSpec,
    history,
    service_process,
    waiting,
)
from railwright_testbed.api_client import ApiError
from railwright_testbed.controllers_process import ControllersProcess
from railwright_testbed.errors import TestbedError
from railwright_testbed.service_process import NAMESPACE
from railwright_topology.sources.formats import File

RACKS = dict(zip(NODES, ("r0", "r0", "r1", "r1", "r1"), strict=True))
HEALTHS = f"/apis/{names.API_VERSION}/{names.NODE_HEALTHS}"
STORED = "/registry/railwright.dev/"

ALL = "RAILWRIGHT_ALL_FAILPOINTS" in os.environ
EVERY = tuple(around(kind, 1) for kind in ("fabric", "health", "files", "fabric", "health"))
"""At each pair one node more reports its adapters, so that there is something to write, whatever
the killed process had written before."""
SOME = ("fabric:1.after", "health:1.before", "files:1.after", "fabric:1.before", "health:1.after")


@pytest.fixture
def site() -> Iterator[Site]:
    """Five nodes, a file with their cables, and controllers behind a proxy; no operator runs."""
    options = ControlPlaneOptions(node_grace_s=NODE_GRACE_S)
    specs = [NodeSpec(node, {names.LABEL_RACK: rack}) for node, rack in RACKS.items()]
    with ControlPlane.start("killed", options=options) as plane, closing(plane.client()) as admin:
        service_process.install(plane, ROOT)
        labels = {names.LABEL_FABRIC: names.SINGLETON}
        body = {"metadata": {"name": "site", "labels": labels}}
        body |= {"data": {"lldp.json": agent_reports.lldp()}}
        admin.post(f"/api/v1/namespaces/{NAMESPACE}/configmaps", body)
        with (
            plane.kwok(specs) as kwok,
            proxy.beside(plane) as between,
            ControllersProcess(plane, through=between.entrance) as process,
        ):
            operator = operator_site.replica(plane, "operator", through=between)
            yield Site(plane, kwok, operator, process, admin, between)
            operator.__exit__(None, None, None)


def test_no_fact_is_lost_by_controllers_that_are_killed(site: Site, tmp_path: Path) -> None:
    agents = NodeAgents(site, tmp_path)
    for node in NODES:
        agents.token(node)
    for whole, pair in enumerate(EVERY, start=1):
        for point in pair if ALL else (Failpoint.named(SOME[whole - 1]),):
            with failpoints.killed_at(site, site.controllers, point):
                _run(site, agents, NODES[:whole])
    _run(site, agents, NODES)
    stages = [asyncio.run(_undisturbed(NODES[:whole])) for whole in range(1, len(NODES) + 1)]
    waiting.until(
        lambda: _published(site) == stages[-1],
        f"{stages[-1]}",
        deadline_s=30,
        evidence=lambda: f"{_published(site)} {site.controllers.log()}",
    )
    _demand_no_fact_lost(site, [fabric | healths for fabric, healths in stages])
    agents.clear()


def _run(site: Site, agents: NodeAgents, whole: Collection[str]) -> None:
    """Start the controllers again, and report to them, as far as they live. Of nodes that are not
    among the ``whole`` ones the adapters are not reported."""
    site.controllers.stop()
    with suppress(ApiError):  # They may have ended before they held it.
        site.admin.delete(controllers.LEASE)
    with suppress(TestbedError):
        site.controllers.start()

    left = [*NODES]

    def is_over() -> bool:
        with suppress(ReportRefusedError):
            while left:
                report = agent_reports.of(left[0], has_adapters=left[0] in whole)
                agents.report_document(left[0], report)
                del left[0]
        return not left or not site.controllers.alive

    waiting.until(is_over, "all reports", deadline_s=30)


def _published(site: Site) -> tuple[Json, Json]:
    items = site.admin.get(HEALTHS)["items"]
    return _facts(site.admin.get(FABRIC)), {
        each["metadata"]["name"]: each["spec"] for each in items
    }


def _facts(fabric: Json) -> Json:
    """The status of the Fabric without times."""
    status: Json = fabric.get("status", {})
    sources = [{**each, "time": ""} for each in status.get("sources", ())]
    return {**status, "freshness": "", "sources": sources}


async def _undisturbed(whole: Collection[str]) -> tuple[Json, Json]:
    """What is published of the same nodes, file and reports by a process that nobody kills."""
    desk = Office()
    desk.add(office.fabric(version=2))
    for node, rack in RACKS.items():
        desk.node(node, taints=(), unread=None, **{names.LABEL_RACK: rack})
    file = File("site", "lldp.json", agent_reports.lldp())
    desk.discovery.files_changed(None, FilesRecord("uid", "site", (file,), rv=1))
    await desk.discovery.read_files()
    for node in NODES:
        report = agent_reports.written(node, has_adapters=node in whole)
        await desk.discovery.receive_report(node, report)
    await desk.report()
    return _facts(desk.store.objects[office.FABRIC]), node_healths.contents(
        desk.discovery.found.fabric
    )


def _demand_no_fact_lost(site: Site, stages: Sequence[Json]) -> None:
    """A fact that is as in one of these stages is never as before it again, nor anything else."""
    reached, versions = dict[str, int](), 0
    for revision in history.revisions(site.plane.etcd):
        for key, value in ((each.key, each.value) for each in revision.changes):
            kind, _, name = key.removeprefix(STORED).partition("/")
            if kind not in (names.FABRICS, names.NODE_HEALTHS):
                continue
            versions += 1
            assert value is not None, f"{key} was deleted"
            found = _facts(value) if kind == names.FABRICS else {name: value["spec"]}
            of_it = {name} if name in NODES else stages[-1].keys() - {*NODES}
            for fact in of_it:
                now = [at for at, its in enumerate(stages) if its.get(fact) == found.get(fact)]
                later = [at for at in now if at >= reached.get(fact, 0)]
                assert later or fact not in reached, (
                    f"revision {revision.number} of {key}: {fact} is {found.get(fact)}, "
                    f"was {stages[reached[fact]].get(fact)}"
                )
                if later:
                    reached[fact] = later[0]
    assert {fact: stages[at][fact] for fact, at in reached.items()} == stages[-1]
    assert versions > len(SOME)
