"""From nothing to a job's first step, through an upgrade and a roll-back, and back to nothing.

The chart is installed on real kubelets, with images that the nodes have: what a registry takes is
not measured. `images_mib` counts the compressed layers of each image, which a registry sends;
`unpacked_mib` counts their files. `apply_to_first_step_seconds` begins once Railwright is ready,
and the pods of the job import no torch. `left_after_uninstall` counts all objects of the cluster
that were not there before, but for the kinds that are meant to stay (`deployment.STAYS`). Progress
goes to stderr, one JSON object to stdout.
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any

from bench import bars
from fixtures import training
from fixtures.training import REPORTS_STEPS, LiveJob, Training, script, step_of
from railwright_testbed import Testbed, deployment, later_version, product_images, waiting
from railwright_testbed.service_process import NAMESPACE

ACCOUNT_DEADLINE_S = 60.0
BOUNDS = {
    "largest_image_mib": 200.0,
    "helm_install_to_ready_seconds": 120.0,
    "apply_to_first_step_seconds": 60.0,
    "upgrade_attempts_ended": 0,
    "left_after_uninstall": 0,
}
PIECE_BYTES = 1 << 20
MIB = 1 << 20


def main() -> int:
    with Testbed.start(name="install") as bed:
        _log("images")
        with tempfile.TemporaryDirectory() as folder:
            archive = Path(folder) / "images.tar"
            unpacked = product_images.write(archive)
            figures: dict[str, Any] = {
                "images_mib": _compressed_mib(archive),
                "unpacked_mib": {name: round(size / MIB) for name, size in unpacked.items()},
            }
            bed.load_images(archive, [bed.system, *bed.nodes])
        figures |= _installed(bed)
    largest = max(mib for image, mib in figures["images_mib"].items() if image != "launcher")
    figures["largest_image_mib"] = largest
    return bars.publish(figures, at_most=BOUNDS)


def _installed(bed: Testbed) -> dict[str, Any]:
    plane = bed.control_plane
    for name in ("team", NAMESPACE):
        _create_namespace(bed, name)
    before = deployment.objects(plane)
    _log("install")
    started_s = time.monotonic()
    deployment.install(plane)
    ready_s = time.monotonic() - started_s
    _log("first job")
    started_s = time.monotonic()
    job = training.apply(plane, "team", Training("first", script(REPORTS_STEPS), bed.image))
    job.until(lambda status: step_of(status) > 0, "its first step")
    first_step_s = time.monotonic() - started_s
    _log("upgrade and roll-back")
    ended = _ended_by_upgrades(bed, job)
    job.delete()
    _log("uninstall")
    deployment.uninstall(plane)
    left = deployment.left(plane, before)
    for each in left:
        _log(f"left: {each}")
    return {
        "helm_install_to_ready_seconds": round(ready_s, 1),
        "apply_to_first_step_seconds": round(first_step_s, 1),
        "upgrade_attempts_ended": ended,
        "left_after_uninstall": len(left),
    }


def _create_namespace(bed: Testbed, name: str) -> None:
    """Return once it has what Kubernetes makes in each: the account that every pod needs, and the
    certificate of the API server."""
    bed.control_plane.kubectl("create", "namespace", name)
    listing = ("-n", name, "get", "serviceaccounts,configmaps", "-o=name")
    made = {"serviceaccount/default", "configmap/kube-root-ca.crt"}
    waiting.until(
        lambda: made <= {*bed.control_plane.kubectl(*listing).split()},
        f"what Kubernetes makes in {name}",
        deadline_s=ACCOUNT_DEADLINE_S,
    )


def _ended_by_upgrades(bed: Testbed, job: LiveJob) -> int:
    with tempfile.TemporaryDirectory() as folder:
        deployment.upgrade(bed.control_plane, chart=later_version.chart(Path(folder)))
    deployment.roll_back(bed.control_plane)
    step = step_of(job.status())
    status = job.until(lambda status: step_of(status) > step, "a step after the roll-back")
    return int(status["attempt"]) - 1


def _compressed_mib(archive: Path) -> dict[str, float]:
    """What a registry would send of each image of an OCI archive."""
    with tarfile.open(archive) as tar:

        def content(digest: str) -> Any:
            found = tar.extractfile(f"blobs/{digest.replace(':', '/')}")
            assert found is not None, digest
            return found

        index = json.load(tar.extractfile("index.json"))  # type: ignore[arg-type]
        sizes = dict[str, float]()
        for each in index["manifests"]:
            name = each["annotations"]["io.containerd.image.name"]
            if name.endswith(f":{later_version.VERSION}"):
                continue
            layers = json.load(content(each["digest"]))["layers"]
            total = sum(_compressed_bytes(content(layer["digest"])) for layer in layers)
            sizes[name.rpartition("/")[2].partition(":")[0]] = round(total / MIB, 1)
    return sizes


def _compressed_bytes(layer: Any) -> int:
    packer, total = zlib.compressobj(), 0
    while piece := layer.read(PIECE_BYTES):
        total += len(packer.compress(piece))
    return total + len(packer.flush())


def _log(text: str) -> None:
    print(f"== {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
