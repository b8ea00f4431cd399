"""The product as pods of a testbed: its images on all nodes, its manifests applied."""

from __future__ import annotations

from pathlib import Path

from railwright_testbed import product_images
from railwright_testbed.service_process import NAMESPACE
from railwright_testbed.testbed import Testbed

REPOSITORY = product_images.REPOSITORY
MANIFESTS = ("examples/operator.yaml", "deploy/agents/agent.yaml")
WORKLOADS = (
    "deployment/railwright-operator",
    "deployment/railwright-controllers",
    "daemonset/railwright-agent",
)
EXAMPLE_IMAGE = "example.com/railwright-"
_READY_DEADLINE = "--timeout=180s"


def load(bed: Testbed, folder: Path) -> dict[str, int]:
    """Assemble the images and give them to all nodes; the bytes of each."""
    archive = folder / "product-images.tar"
    sizes = product_images.write(archive)
    bed.load_images(archive)
    archive.unlink()
    return sizes


def apply(bed: Testbed) -> None:
    """Apply the manifests as they are, but for the names of their images; return once all pods are
    ready."""
    for manifest in MANIFESTS:
        text = (REPOSITORY / manifest).read_text(encoding="utf-8")
        text = text.replace(EXAMPLE_IMAGE, product_images.PREFIX)
        bed.control_plane.kubectl("apply", "-f", "-", stdin=text)
    for workload in WORKLOADS:
        rollout = ("rollout", "status", workload, _READY_DEADLINE)
        bed.control_plane.kubectl("-n", NAMESPACE, *rollout)


def remove(bed: Testbed) -> None:
    """Delete what ``apply`` made; return once no pod is left."""
    for manifest in MANIFESTS:
        path = str(REPOSITORY / manifest)
        bed.control_plane.kubectl("delete", "-f", path, "--ignore-not-found", "--timeout=120s")
    gone = ("wait", "--for=delete", "pod", "--all", "--timeout=120s")
    bed.control_plane.kubectl("-n", NAMESPACE, *gone)
