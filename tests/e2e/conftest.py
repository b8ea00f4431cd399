"""Five real nodes and a running operator, one for the whole run; a namespace for each test."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fixtures import training
from fixtures.clusters import Cluster
from fixtures.training import LiveJob, Training
from history import recorded
from railwright_testbed import Testbed, missing_for_real_nodes, service_process, waiting
from railwright_testbed.controllers_process import ControllersProcess
from railwright_testbed.operator_process import OperatorProcess

ROOT = Path(__file__).resolve().parents[2]

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Two racks of two nodes and a spare, and the operator under its own service account.

    When the last test is over, all that they did to etcd is judged.
    """
    missing = missing_for_real_nodes()
    assert not missing, f"real nodes are impossible here: {missing}"
    with Testbed.start(name="e2e") as bed:
        service_process.install(bed.control_plane, ROOT)
        operator = OperatorProcess(
            bed.control_plane,
            name="operator",
            host=bed.host_address,
            launcher_image=bed.launcher_image,
        )
        with ControllersProcess(bed.control_plane, host=bed.host_address) as controllers, operator:
            yield Cluster(bed, operator, controllers)
            recorded.demand_sound_history(bed.control_plane)


@pytest.fixture
def run(cluster: Cluster) -> Iterator[Callable[[Training], LiveJob]]:
    """Apply a job in a namespace of this test's own, on the testbed's image; none goes on after
    the test."""
    namespace = f"test-{next(_numbers)}"
    plane = cluster.bed.control_plane
    plane.kubectl("create", "namespace", namespace)
    waiting.until(
        lambda: "/default" in plane.kubectl("-n", namespace, "get", "serviceaccounts", "-o=name"),
        "the account that every pod needs",
        deadline_s=60,
    )

    def apply(job: Training) -> LiveJob:
        image = cluster.bed.image if job.image == training.NO_IMAGE else job.image
        return training.apply(plane, namespace, replace(job, image=image))

    yield apply
    plane.kubectl("-n", namespace, "delete", "trainingjobs", "--all", "--wait=false")


@pytest.fixture
def checkpoints(cluster: Cluster) -> Callable[[str], dict[str, str]]:
    """A volume that all nodes share, of this name, to mount at /checkpoints."""

    def volume(name: str) -> dict[str, str]:
        folder = cluster.bed.shared_directory / f"{name}-{next(_numbers)}"
        folder.mkdir(parents=True)
        return {"/checkpoints": str(folder)}

    return volume
