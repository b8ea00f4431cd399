"""`make demo KUBECONFIG=...` on a cluster that is not its own: it recovers, and leaves nothing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures import storage
from railwright_testbed import Testbed, deployment, missing_for_real_nodes, product_images, waiting

ROOT = Path(__file__).resolve().parents[2]
VOLUMES = 2
"""One for each run: what was bound to a claim is not bound again."""

DEMO_DEADLINE_S = 600.0
END_DEADLINE_S = 300.0
GONE_DEADLINE_S = 60.0
COLUMNS = (
    "custom-columns=KIND:.kind,NS:.metadata.namespace,NAME:.metadata.name,UID:.metadata.uid,"
    "LABELS:.metadata.labels"
)


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    """Two nodes that have the images, and volumes."""
    missing = missing_for_real_nodes()
    assert not missing, f"real nodes are impossible here: {missing}"
    with Testbed.start("own", {"rack-a": 2}) as bed:
        deployment.load_everywhere(bed, tmp_path_factory.mktemp("images"))
        storage.add_default(bed, VOLUMES)
        yield bed


@pytest.mark.alone
def test_demo_recovers_on_a_cluster_and_leaves_nothing(bed: Testbed) -> None:
    before = _objects(bed)
    ended = subprocess.run(
        [*_make(bed), "YES=1"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEMO_DEADLINE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    figures = json.loads(ended.stdout.splitlines()[-1])
    assert figures["succeeded"] is True
    assert (figures["steps"], figures["attempts"]) == (60, 2)
    assert (figures["pods"], figures["nodes"]) == (4, 1)
    assert figures["losses_equal_uninterrupted"] is True
    assert 0 < figures["detect_seconds"] < figures["resume_seconds"]
    assert 0 <= figures["steps_redone"] <= figures["checkpoint_interval_steps"]
    assert "PodDeleted" in ended.stdout
    assert f"context   {_context(bed)}, {bed.control_plane.url}" in ended.stderr
    assert "everything that the demo installed is removed" in ended.stderr
    _demand_nothing_left(bed, before)


@pytest.mark.alone
def test_interrupted_demo_on_a_cluster_leaves_nothing(bed: Testbed, tmp_path: Path) -> None:
    before = _objects(bed)
    log = tmp_path / "stderr"
    with log.open("w") as stderr:
        demo = subprocess.Popen(
            [sys.executable, "-m", "railwright_demo", "--yes", *_options(bed)],
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        )
    try:
        waiting.until(
            lambda: demo.poll() is not None or "Running, step" in log.read_text(),
            "a step of the training",
            deadline_s=DEMO_DEADLINE_S,
            evidence=log.read_text,
        )
        demo.send_signal(signal.SIGTERM)
        assert demo.wait(END_DEADLINE_S) == 128 + signal.SIGTERM, log.read_text()
    finally:
        demo.kill()
        demo.wait()
    assert "everything that the demo installed is removed" in log.read_text()
    _demand_nothing_left(bed, before)


def _make(bed: Testbed) -> list[str]:
    """The command of docs/install.md, with the Python that runs this."""
    variables = {
        "KUBECONFIG": str(bed.control_plane.kubeconfig),
        "IMAGE": product_images.name_of("operator"),
        "TRAIN_IMAGE": bed.image,
        "PYTHON": sys.executable,
    }
    make = ["make", "--old-file=.venv/.installed", "demo"]
    return [*make, *(f"{name}={value}" for name, value in variables.items())]


def _options(bed: Testbed) -> list[str]:
    return [
        f"--kubeconfig={bed.control_plane.kubeconfig}",
        f"--image={product_images.name_of('operator')}",
        f"--train-image={bed.image}",
        f"--storage-class={storage.CLASS}",
    ]


def _context(bed: Testbed) -> str:
    return bed.control_plane.kubectl("config", "current-context").strip()


def _objects(bed: Testbed) -> set[str]:
    """All objects of the cluster with their UIDs, but for events, which end by themselves."""
    plane = bed.control_plane
    listed = plane.kubectl("api-resources", "--verbs=list", "-o=name").split()
    resources = ",".join(each for each in listed if not each.startswith("events"))
    found = plane.kubectl("get", resources, "--all-namespaces", f"-o={COLUMNS}")
    return set(found.splitlines())


def _demand_nothing_left(bed: Testbed, before: set[str]) -> None:
    waiting.until(
        lambda: _objects(bed) == before,
        "the objects that were there before the demo, and no others",
        deadline_s=GONE_DEADLINE_S,
        evidence=lambda: "\n".join(sorted(_objects(bed) ^ before)),
    )
