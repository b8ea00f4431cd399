"""Jobs that run when something else is found out about the network: they move if it pays off.

It runs an operator of its own: what is said of the network holds for all of its nodes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from integration import operator_site
from integration.operator_site import Floor, Job, Json, Site
from integration.test_operator_mapping import STAGES_FIRST
from railwright_api import names
from railwright_conversion.machines import PRODUCT
from railwright_kube.paths import NODES
from railwright_testbed.service_process import NAMESPACE
from railwright_testbed.simulated_launchers import Played, SimulatedLaunchers

CHECKPOINT_INTERVAL_STEPS = 20
STEPS_UNHEARD = 8
"""Four a second, until launchers hear at their next heartbeat that their attempt is over."""

RACKS = (4, 4, 4)
REPLICAS: dict[str, Any] = STAGES_FIRST | {"parallelism": {"tensor": 8, "data": 8}}
"""All nodes sum up gradients in one ring."""

MOVED_S = 120.0
"""The links must have been stable for a while, and the old pods have to go."""

SHORT_STEPS = 240
"""Four a second: the job ends long after the operator has evaluated whether it is to migrate."""


@pytest.fixture(scope="module")
def ground() -> Iterator[Site]:
    with operator_site.opened() as site:
        yield site


@pytest.fixture
def racks(ground: Site) -> Iterator[Floor]:
    """Three racks of machines that the cost model knows, each of which lets out all that it
    sends; one of them stays free."""
    with operator_site.floor_on(ground, RACKS) as floor:
        for node in floor.nodes:
            labels = {PRODUCT: "NVIDIA-A100-SXM4-80GB"}
            ground.admin.patch(f"{NODES}/{node}", {"metadata": {"labels": labels}})
        ground.until_nodes_heard()
        _measured(floor, [4.0, 4.0, 4.0])
        yield floor


def _measured(floor: Floor, leaving: list[float]) -> None:
    """A survey found that so many nodes of each rack can send out of it at once."""
    groups = [floor.nodes[at : at + 4] for at in (0, 4, 8)]
    domains = {f"near {nodes[0]}": nodes for nodes in groups}
    rooms = dict(zip(domains, leaving, strict=True))
    survey = {"version": 1, "tiers": [{"domains": domains, "leaving": rooms}], "strange": []}
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "survey",
            "namespace": NAMESPACE,
            "labels": {names.LABEL_FABRIC: names.SINGLETON},
        },
        "data": {"probes.json": json.dumps(survey)},
    }
    floor.site.plane.kubectl("apply", "-f", "-", stdin=json.dumps(body))


def _until_checkpoint(job: Job) -> Json:
    """Its status once it runs and has a checkpoint. It was placed by the measured links."""
    status = job.until(
        lambda status: status.get("phase") == "Running" and bool(status.get("checkpoints")),
        "a checkpoint",
        deadline_s=MOVED_S,
    )
    assert job.placement(status["attempt"])["topologyHash"]
    return status


def test_job_migrates_from_slow_uplinks_and_resumes(ground: Site, racks: Floor) -> None:
    """The uplinks become slow; the job moves and resumes from its checkpoint."""
    played = Played(steps=1_000_000, checkpoint_interval_steps=CHECKPOINT_INTERVAL_STEPS)
    with SimulatedLaunchers(ground.plane, played) as launchers:
        job = racks.apply("long", nodes=8, processes=8, workload=REPLICAS)
        _until_checkpoint(job)
        before = job.nodes()
        assert before == racks.nodes[:8]
        _measured(racks, [4.0, 0.25, 4.0])
        after = job.until(
            lambda status: status.get("attempt") == 2 and status.get("phase") == "Running",
            "a second attempt that runs",
            deadline_s=MOVED_S,
        )
        assert (after["restarts"], after["moves"], after["failures"]) == (1, 1, 0)
        end = after["lastTermination"]
        assert (end["cause"], end["attempt"]) == ("Remapped", 1)
        assert (
            "the bandwidth of 0.25 nodes, for 4 nodes of the job; a step is predicted to take "
            in end["message"]
        )
        spec = job.placement(2)
        assert spec["nodes"][:4] == before[:4]
        assert sorted(spec["nodes"][4:]) == racks.nodes[8:]
        assert spec["reason"] == f"after Remapped: {end['message']}"
        assert spec["mapping"]["moved"] == 4
        (resume,) = spec["resume"]
        job.until(lambda _: launchers.steps(2) is not None, "a step of it", deadline_s=30)
        first, old = launchers.steps(2), launchers.steps(1)
        assert first is not None
        assert old is not None
        assert first[0] == resume["step"] + 1
        assert old[1] - resume["step"] <= CHECKPOINT_INTERVAL_STEPS + STEPS_UNHEARD
        assert job.events()[:4] == ["Scheduled", "Running", "Remapped", "Recovering"]


def test_a_job_that_is_soon_done_stays_where_it_is(ground: Site, racks: Floor) -> None:
    played = Played(steps=SHORT_STEPS, checkpoint_interval_steps=CHECKPOINT_INTERVAL_STEPS)
    with SimulatedLaunchers(ground.plane, played):
        job = racks.apply("short", nodes=8, processes=8, workload=REPLICAS)
        before = _until_checkpoint(job)
        _measured(racks, [4.0, 0.25, 4.0])
        after = job.until_phase("Succeeded", deadline_s=2 * MOVED_S)
        assert (after["attempt"], after["nodes"]) == (1, before["nodes"])
