"""The controllers are killed in the middle of a survey of real agents, as they store a sample: the
next ones go on where they were, and what was published stays.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fixtures import local_network
from integration import controllers, failpoints, operator_site, surveyed
from integration.failpoints import Failpoint
from integration.node_agents import NodeAgents
from integration.operator_site import FABRIC, Json, Site
from integration.surveyed import CONFIG_MAPS, KEPT, NODES, SOURCE, Rails
from railwright_api import names
from railwright_controllers.surveys import progress
from railwright_controllers.surveys.progress import SurveyProgress
from railwright_controllers.watch.files import PROGRESS
from railwright_testbed import history, waiting
from railwright_testbed.controllers_process import ControllersProcess

STORING = "fixtures.storing_controllers"
STORED = 6
KILLED = Failpoint("survey", STORED + 2, after=False)
"""The first write has no sample, the next ones have one more each, and this one is lost."""
HEALTHS = f"/apis/{names.API_VERSION}/{names.NODE_HEALTHS}"


@pytest.fixture
def site() -> Iterator[Site]:
    """Its controllers are behind the proxy, and store each sample before the next."""
    with operator_site.opened() as opened:
        opened.controllers.stop()
        opened.admin.delete(controllers.LEASE)
        with ControllersProcess(
            opened.plane, name="storing", through=opened.proxy.entrance, module=STORING
        ) as storing:
            yield replace(opened, controllers=storing)


@pytest.fixture
def rails(site: Site) -> Iterator[Rails]:
    """Nodes that are to be measured: no label places them."""
    with local_network.opened() as network, operator_site.floor_on(site, (NODES,)) as floor:
        for node in floor.nodes:
            surveyed.unlabel(site, node)
        site.admin.patch(FABRIC, {"spec": {"probing": {"networks": [network]}}})
        yield Rails(floor, network)


@pytest.fixture
def agents(site: Site, tmp_path: Path) -> Iterator[NodeAgents]:
    started = NodeAgents(site, tmp_path)
    yield started
    started.clear()


def test_survey_goes_on_after_the_controllers_are_killed(
    site: Site, rails: Rails, agents: NodeAgents
) -> None:
    """No pair is measured again but the one whose sample was not stored yet."""
    with operator_site.floor_on(site, (1,)) as other:
        job = other.apply("trains", nodes=1)
        attempt = _attempt(job.until_bound())
        with failpoints.killed_at(site, site.controllers, KILLED):
            _measure(site, rails, agents)
            waiting.until(
                lambda: not site.controllers.alive,
                "the kill",
                deadline_s=120,
                evidence=site.controllers.log,
            )
        killed_at, published = history.mark(site.plane.etcd, {}), _published(site)
        assert published[names.SINGLETON]["agents"]["nodes"] == NODES
        assert published.keys() > {*rails.floor.nodes}
        config_map = site.admin.get(KEPT)
        before = Counter(_progress(config_map).samples)
        assert before.total() == STORED

        # An agent that goes on reports within minutes; one that starts, at once.
        agents.stop()
        controllers.start_again(site)
        _measure(site, rails, agents)
        status = surveyed.until_status(site, _is_measured, "what was measured", 120)
        assert [each["nodes"] for each in status["sources"] if each["source"] == SOURCE] == [NODES]
        _demand_continued(site, config_map["metadata"]["resourceVersion"], before)
        _demand_kept(site, killed_at, published)
        assert _attempt(job.status()) == attempt


def _measure(site: Site, rails: Rails, agents: NodeAgents) -> None:
    """Start the agents once the controllers call them for a survey."""
    surveyed.until_nodes(site, "due", NODES)
    rails.start(agents)


def _is_measured(status: Json) -> bool:
    return SOURCE in [each["source"] for each in status.get("sources", [])]


def _attempt(status: Json) -> Json:
    return {field: status.get(field) for field in ("attempt", "endedAttempt", "phase", "nodes")}


def _progress(config_map: Json) -> SurveyProgress:
    packed = base64.b64decode(config_map["binaryData"][PROGRESS])
    return progress.parse(gzip.decompress(packed).decode())


def _demand_continued(site: Site, version: str, before: Counter[Any]) -> None:
    """All that was stored after this version has the samples of ``before``, and each probe since
    added one that was missing."""
    query = f"watch=1&timeoutSeconds=1&resourceVersion={version}"
    query += f"&fieldSelector=metadata.name%3D{names.PROBES}"
    lines = site.plane.kubectl("get", "--raw", f"{CONFIG_MAPS}?{query}").splitlines()
    written = [Counter(_progress(json.loads(line)["object"]).samples) for line in lines]
    *running, result = written
    assert not result
    assert all(samples >= before for samples in running)
    assert {sample[:2] for sample in running[-1]} > {sample[:2] for sample in before}
    assert surveyed.probes(site) == running[-1].total() - STORED > 0


def _published(site: Site) -> dict[str, Json]:
    """The facts of the Fabric, and of each NodeHealth, by name."""
    healths = site.admin.get(HEALTHS)["items"]
    return {each["metadata"]["name"]: _facts(each) for each in (site.admin.get(FABRIC), *healths)}


def _facts(found: Json) -> Json:
    """What no survey changes. Of the topology that is so until one has placed nodes."""
    if found["kind"] == "NodeHealth":
        return dict(found["spec"])
    status = found["status"]
    fields = {field: status.get(field) for field in ("agents", "hardware", "rails")}
    return fields if _is_measured(status) else fields | {"topology": status.get("topology")}


def _demand_kept(site: Site, since: int, published: Mapping[str, Json]) -> None:
    """No version of an object after this revision lacks a fact, nor was one deleted."""
    later = (each for each in history.revisions(site.plane.etcd) if each.number > since)
    versions = 0
    for change in (change for revision in later for change in revision.changes):
        kind, name = change.key.split("/")[-2:]
        if kind not in (names.FABRICS, names.NODE_HEALTHS):
            continue
        assert change.value is not None, f"{change.key} was deleted"
        found, before = _facts(change.value), dict(published[name])
        if kind == names.FABRICS and "topology" not in found:
            del before["topology"]
        assert {**found, **before} == found, change.key
        versions += 1
    assert versions
