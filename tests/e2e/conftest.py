"""Five real nodes and the deployed product, one for the whole run; a namespace for each test."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from fixtures import training
from fixtures.training import LiveJob, Training
from history import recorded
from railwright_testbed import Testbed, deployment, missing_for_real_nodes, waiting

_numbers = itertools.count(1)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with clusters of their own come before the first that needs ``bed``, which is there
    until the end: ten real nodes at once are too many for a small machine."""
    items.sort(key=lambda item: "bed" in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    """Two racks of two nodes and a spare, and the product as its chart installs it.

    When the last test is over, all that they did to etcd is judged.
    """
    missing = missing_for_real_nodes()
    assert not missing, f"real nodes are impossible here: {missing}"
    with Testbed.start(name="e2e") as bed:
        deployment.load_everywhere(bed, tmp_path_factory.mktemp("images"))
        deployment.install(bed.control_plane)
        yield bed
        recorded.demand_sound_history(bed.control_plane)


@pytest.fixture
def run(bed: Testbed) -> Iterator[Callable[[Training], LiveJob]]:
    """Apply a job in a namespace of this test's own, on the testbed's image; none goes on after
    the test."""
    namespace = f"test-{next(_numbers)}"
    plane = bed.control_plane
    plane.kubectl("create", "namespace", namespace)
    waiting.until(
        lambda: "/default" in plane.kubectl("-n", namespace, "get", "serviceaccounts", "-o=name"),
        "the account that every pod needs",
        deadline_s=60,
    )

    def apply(job: Training) -> LiveJob:
        image = bed.image if job.image == training.NO_IMAGE else job.image
        return training.apply(plane, namespace, replace(job, image=image))

    yield apply
    plane.kubectl("-n", namespace, "delete", "trainingjobs", "--all", "--wait=false")


@pytest.fixture
def checkpoints(bed: Testbed) -> Callable[[str], dict[str, str]]:
    """A volume that all nodes share, of this name, to mount at /checkpoints."""

    def volume(name: str) -> dict[str, str]:
        folder = bed.shared_directory / f"{name}-{next(_numbers)}"
        folder.mkdir(parents=True)
        return {"/checkpoints": str(folder)}

    return volume
