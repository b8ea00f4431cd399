"""The operator beside controllers that are killed, hang, are down, or lose the Fabric: jobs run on
and start, and nothing that was found is lost.

It runs processes of its own, as it ends the controllers."""

from __future__ import annotations

import http.client
import itertools
import json
import signal
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from http import HTTPStatus
from os import kill

import pytest

from fixtures import certificates
from integration import controllers, operator_site
from integration.operator_site import FABRIC, Floor, Json, Site
from railwright_api import names
from railwright_controllers.wiring import AUTHORITY
from railwright_kube.paths import NODES
from railwright_testbed import waiting
from railwright_testbed.controllers_process import ControllersProcess
from railwright_testbed.service_process import NAMESPACE

FABRICS = FABRIC.rpartition("/")[0]
Fault = Callable[[Site], AbstractContextManager[None]]
RELABELLED_S = 5.0
"""How long after the change of a label decisions may use the old one."""


@pytest.fixture(scope="module")
def ground() -> Iterator[Site]:
    with operator_site.opened() as site:
        yield site


@pytest.fixture
def floor(ground: Site) -> Iterator[Floor]:
    """Two racks of two nodes; its nodes go with it."""
    with operator_site.floor_on(ground) as made:
        yield made
        made.clear()
        for node in made.nodes:
            ground.admin.delete(f"{NODES}/{node}")


def _topology(site: Site) -> Json:
    """Empty without a Fabric."""
    for fabric in site.admin.get(FABRICS)["items"]:
        found: Json = fabric.get("status", {}).get("topology", {})
        return found
    return {}


@contextmanager
def _killed(site: Site) -> Iterator[None]:
    """The controllers are killed, and start again after the block."""
    site.controllers.stop()
    yield
    site.admin.delete(controllers.LEASE)
    site.controllers.start()


@contextmanager
def _hung(site: Site) -> Iterator[None]:
    """The controllers stand still in the block."""
    kill(site.controllers.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        kill(site.controllers.pid, signal.SIGCONT)


@pytest.mark.parametrize("fault", [_killed, _hung])
def test_jobs_run_and_start_without_controllers(ground: Site, floor: Floor, fault: Fault) -> None:
    """A job that runs keeps its attempt, and a new one is placed by the racks that were found."""
    running = floor.apply("running", nodes=1)
    running.until_bound()
    before = _topology(ground)
    assert before
    with fault(ground):
        started = floor.apply("started", nodes=2)
        status = started.until_bound()
        assert status["racks"] == 1
        assert running.status()["attempt"] == 1
        assert _topology(ground) == before
    assert running.status()["attempt"] == 1
    ground.until_nodes_heard()


def test_rack_label_just_changed_reaches_decisions(ground: Site, floor: Floor) -> None:
    """A job that arrives ``RELABELLED_S`` later is placed by the new label."""
    racks = [floor.nodes[0::2], floor.nodes[1::2]]
    for rack, nodes in zip("ab", racks, strict=True):
        for node in nodes:
            labels = {names.LABEL_RACK: f"{floor.name}-{rack}"}
            ground.admin.patch(f"{NODES}/{node}", {"metadata": {"labels": labels}})
    end_s, placed = time.monotonic() + RELABELLED_S, False
    for number in itertools.count():
        is_last = time.monotonic() > end_s
        # A label that changes between plan and commit refuses the plan: any attempt will do.
        placed = floor.apply(f"gang-{number}", nodes=2).until_nodes(attempt=None) in racks
        floor.clear()
        if placed or is_last:
            break
    assert placed, _topology(ground)


def test_both_processes_measure_their_event_loop(ground: Site) -> None:
    for process in (ground.operator, ground.controllers):
        found = process.series("railwright_loop_lag_seconds_count")
        assert [*found.values()] > [0], process


def test_fabric_that_is_deleted_comes_back(ground: Site, floor: Floor) -> None:
    before = _topology(ground)
    ground.admin.delete(FABRIC)
    waiting.until(
        lambda: _topology(ground) == before,
        "the Fabric with its topology",
        deadline_s=30,
    )
    assert floor.apply("gang", nodes=2).until_bound()["racks"] == 1


def test_restart_loses_nothing_of_a_file_that_became_invalid(ground: Site, floor: Floor) -> None:
    """What a valid file reported stays, also for controllers that have never read it."""
    halves = [floor.nodes[0::2], floor.nodes[1::2]]
    leaves = (f"SwitchName=leaf-{at} Nodes={','.join(its)}\n" for at, its in enumerate(halves))
    for node in floor.nodes:
        ground.admin.patch(f"{NODES}/{node}", {"metadata": {"labels": {names.LABEL_RACK: None}}})
    try:
        _give(ground, "".join(leaves))
        waiting.until(
            lambda: _sources(ground) == ["site/topology.conf"], "its tiers", deadline_s=20
        )
        before = _topology(ground)
        _give(ground, "no topology\n")
        waiting.until(lambda: _problems(ground), "a problem", deadline_s=20)
        controllers.start_again(ground)
        kept = "all that was published stays until site/topology.conf is valid again"
        waiting.until(lambda: kept in _problems(ground), kept, deadline_s=20)
        assert _topology(ground) == before
        assert floor.apply("gang", nodes=2).until_nodes() in halves
    finally:
        ground.plane.kubectl("-n", NAMESPACE, "delete", "configmap", "site")
    waiting.until(lambda: not _sources(ground), "no source", deadline_s=20)


def _give(site: Site, conf: str) -> None:
    """Put a topology.conf into the ConfigMap ``site``."""
    labels = {names.LABEL_FABRIC: names.SINGLETON}
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "site", "namespace": NAMESPACE, "labels": labels},
        "data": {"topology.conf": conf},
    }
    site.plane.kubectl("apply", "-f", "-", stdin=json.dumps(body))


def _sources(site: Site) -> list[str]:
    status = site.admin.get(FABRIC).get("status", {})
    return [each["source"] for each in status.get("sources", [])]


def _problems(site: Site) -> list[str]:
    return [each["message"] for each in site.admin.get(FABRIC)["status"].get("problems", [])]


def test_replica_that_waits_takes_over_from_one_that_ends(ground: Site, floor: Floor) -> None:
    """It is ready, refuses agents until it holds the Lease, and then follows labels."""
    with ControllersProcess(ground.plane, name="second") as second:
        assert [json.loads(line) for line in second.log_file.read_text().splitlines()]
        tls = certificates.client_of(ground.admin, AUTHORITY)
        assert _answer(second, tls) == HTTPStatus.SERVICE_UNAVAILABLE
        assert _answer(ground.controllers, tls) == HTTPStatus.FORBIDDEN
        kill(ground.controllers.pid, signal.SIGTERM)
        waiting.until(lambda: not ground.controllers.alive, "its end", deadline_s=20)
        waiting.until(
            lambda: _answer(second, tls) == HTTPStatus.FORBIDDEN, "a new holder", deadline_s=20
        )
        ground.until_nodes_heard()
        assert floor.apply("gang", nodes=2).until_bound()["racks"] == 1
    controllers.start_again(ground)
    ground.until_nodes_heard()


def _answer(process: ControllersProcess, tls: ssl.SSLContext) -> int:
    """The status of the response to an agent without a valid token."""
    connection = http.client.HTTPSConnection(process.address, timeout=5, context=tls)
    try:
        headers = {"Authorization": "Bearer none"}
        connection.request("POST", "/v1/hardware", body=b"{}", headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()
