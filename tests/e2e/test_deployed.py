"""Railwright as its users run it: pods from its images, found by its Services."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from fixtures.clusters import Cluster
from fixtures.training import LiveJob, Training, script
from railwright_testbed import deployment, waiting
from railwright_testbed.service_process import NAMESPACE

Run = Callable[[Training], LiveJob]

DEADLINE_S = 120.0

TRAINS = """
import time
import railwright
for step in range(100_000):
    railwright.report(step, 1.0)
    time.sleep(0.2)
"""


@pytest.fixture(scope="module")
def deployed(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The pods, in place of the processes that other tests use."""
    cluster.operator.stop()
    cluster.controllers.stop()
    try:
        deployment.load(cluster.bed, tmp_path_factory.mktemp("images"))
        deployment.apply(cluster.bed)
        yield cluster
    finally:
        deployment.remove(cluster.bed)
        cluster.controllers.start()
        cluster.operator.start()


def test_job_without_python_in_its_image_runs(deployed: Cluster, run: Run) -> None:
    """The image's shell finds no python3; the launcher has its own."""
    command = ["/bin/sh", "-c", "echo rank $RANK of $WORLD_SIZE"]
    job = run(Training("no-python", command, environment={"PATH": "/nowhere"}))
    job.until_phase("Succeeded")
    for rank in (0, 1):
        lines = job.logs(1, rank).splitlines()
        assert f"rank {rank} of 2" in lines
        # A launcher that reached the standby went on to the leader.
        assert not [line for line in lines if "refused" in line], lines


def test_operator_is_rolled_while_a_job_trains(deployed: Cluster, run: Run) -> None:
    """No attempt ends, and the job's step goes on."""
    job = run(Training("trains", script(TRAINS)))
    job.until(lambda found: _step(found) > 0, "its first step")
    _rolled(deployed, "deployment/railwright-operator")
    _rolled(deployed, "deployment/railwright-controllers")
    step = _step(job.status())
    status = job.until(lambda found: _step(found) > step + 20, "more steps")
    assert (status["attempt"], status["phase"]) == (1, "Running")
    job.delete()


def test_agents_report_every_node(deployed: Cluster) -> None:
    plane = deployed.bed.control_plane

    def reporting() -> int:
        fabric = json.loads(plane.kubectl("get", "fabric", "default", "-o=json"))
        return int(fabric["status"].get("agents", {}).get("nodes", 0))

    count = len(deployed.bed.nodes)
    waiting.until(lambda: reporting() == count, "reports of all agents", deadline_s=DEADLINE_S)


def test_no_container_of_ours_ended(deployed: Cluster) -> None:
    pods = json.loads(deployed.bed.control_plane.kubectl("-n", NAMESPACE, "get", "pods", "-o=json"))
    restarts = {
        pod["metadata"]["name"]: each["restartCount"]
        for pod in pods["items"]
        if "deletionTimestamp" not in pod["metadata"]
        for each in pod["status"]["containerStatuses"]
    }
    assert len(restarts) == 3 + len(deployed.bed.nodes)
    assert set(restarts.values()) == {0}


def _rolled(cluster: Cluster, workload: str) -> None:
    plane = cluster.bed.control_plane
    plane.kubectl("-n", NAMESPACE, "rollout", "restart", workload)
    plane.kubectl("-n", NAMESPACE, "rollout", "status", workload, "--timeout=180s")


def _step(status: dict[str, object]) -> int:
    progress = status.get("progress", {})
    assert isinstance(progress, dict)
    return int(progress.get("step", 0))
