"""The product as pods of a testbed: its images on the nodes, its chart or manifests applied."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Container
from pathlib import Path
from typing import Any

from railwright_api.names import GROUP
from railwright_testbed import helm, product_images, waiting
from railwright_testbed.control_plane import ControlPlane
from railwright_testbed.node import CONTROL_PLANE
from railwright_testbed.scraping import Reader
from railwright_testbed.service_process import NAMESPACE
from railwright_testbed.testbed import Testbed

OPERATOR = "deployment/railwright-operator"
REPLICAS = 2
WORKLOADS = (
    OPERATOR,
    "deployment/railwright-controllers",
    "daemonset/railwright-agent",
)
RELEASE = "railwright"
KUSTOMIZATION = helm.CHART.parent / "examples/install/kustomization.yaml"
EXAMPLE_REGISTRY = "registry.example.com/team"
METRICS_PORT = "metrics"
SCRAPED = ("railwright-operator", "railwright-controllers")
"""The processes with metrics, as their Deployments and the labels ``app`` of their pods name
them."""

STAYS = {
    "CustomResourceDefinition": "a release leaves the kinds, and so all objects of users",
    "APIService": "Kubernetes has one for our group while there are kinds",
    "Event": "Kubernetes deletes it after an hour",
    "Queue": "of users, who may have changed the default one",
    "Fabric": "of the site, which may have configured it; it has what was discovered",
    "NodeHealth": "what was discovered: the next installation starts from it",
    "Ledger": "which attempts run: the next installation continues them",
}
"""Kinds whose objects stay after an uninstallation. TrainingJobs are of users; their Placements and
Profiles are deleted with them."""

_ON_SYSTEM_NODE = {
    "nodeSelector": {CONTROL_PLANE: ""},
    "tolerations": [{"key": CONTROL_PLANE, "operator": "Exists"}],
}
_ITS_LABEL = "--selector=app=railwright-operator"
_ITS_PODS = ("--namespace", NAMESPACE, "pods", _ITS_LABEL)
_DEADLINE_S = 110.0
_WAITS = ("--wait", "--timeout=110s")
_TAKES = ("--force-conflicts",)
"""Kinds may be there that kubectl applied: their fields are also its own."""


def load(bed: Testbed, folder: Path) -> None:
    """Assemble the images and give them to the nodes on which ``install`` needs them."""
    every, of_nodes = folder / "product-images.tar", folder / "node-images.tar"
    product_images.write(every, of_nodes=of_nodes)
    bed.load_images(every, [bed.system])
    bed.load_images(of_nodes, bed.nodes)
    every.unlink()
    of_nodes.unlink()


def load_everywhere(bed: Testbed, folder: Path) -> None:
    """Assemble the images and give all of them to all nodes."""
    archive = folder / "product-images.tar"
    product_images.write(archive)
    bed.load_images(archive, [bed.system, *bed.nodes])
    archive.unlink()


def install(plane: ControlPlane, *changes: str) -> None:
    """Install the chart with these values; return once all pods are ready.

    Its kinds may be there already. The operator and the controllers run on the system node, whose
    processors they share.
    """
    values = [f"--set={each}" for each in (f"images.registry={product_images.REGISTRY}", *changes)]
    for each in ("operator", "controllers"):
        values += [
            f"--set-json={each}.pod={json.dumps(_ON_SYSTEM_NODE)}",
            f"--set={each}.resources.requests.cpu=100m",
        ]
    options = ("--create-namespace", "--take-ownership", *values, *_TAKES, *_WAITS)
    _helm(plane, "install", RELEASE, str(helm.CHART), *options)


def crash_operator(plane: ControlPlane) -> None:
    """End both replicas at once; return once new ones are ready."""
    before = _operators(plane)
    plane.kubectl("delete", *_ITS_PODS, "--grace-period=0", "--force")
    _until_operators(plane, lambda now: len(now) == REPLICAS and not now & before)


def scale_operator(plane: ControlPlane, replicas: int) -> None:
    """Have so many replicas of the operator; return once they are ready, and no others there."""
    plane.kubectl("-n", NAMESPACE, "scale", OPERATOR, f"--replicas={replicas}")
    _until_operators(plane, lambda now: len(now) == replicas)


def upgrade(plane: ControlPlane, *values: str, chart: Path = helm.CHART) -> None:
    """Change the chart, or these values; return once all new pods are ready."""
    changes = [f"--set={value}" for value in values]
    _helm(
        plane,
        "upgrade",
        RELEASE,
        str(chart),
        "--reset-then-reuse-values",
        *changes,
        *_TAKES,
        *_WAITS,
    )


def roll_back(plane: ControlPlane) -> None:
    """Return to what was installed first, and wait in the same way."""
    _helm(plane, "rollback", RELEASE, "1", *_TAKES, *_WAITS)


def uninstall(plane: ControlPlane) -> None:
    """Remove the release, if there is one; return once no pod is left."""
    _helm(plane, "uninstall", RELEASE, "--ignore-not-found", *_WAITS)
    _until_no_pods(plane)


def apply_manifests(plane: ControlPlane) -> None:
    """Apply the manifests without Helm, as docs/install.md does it; return once all pods are
    ready."""
    with tempfile.TemporaryDirectory() as folder:
        deploy = os.path.relpath(helm.CHART, os.path.realpath(folder))
        text = KUSTOMIZATION.read_text(encoding="utf-8").replace("../../deploy", deploy)
        own = Path(folder, KUSTOMIZATION.name)
        own.write_text(text.replace(EXAMPLE_REGISTRY, product_images.REGISTRY), encoding="utf-8")
        plane.kubectl("apply", "--server-side", "--force-conflicts", "-k", folder)
    for workload in WORKLOADS:
        _until_ready(plane, workload)


def delete_manifests(plane: ControlPlane) -> None:
    """Delete them, as docs/install.md does it; return once no pod is left."""
    for folder in ("agents", "processes", "rights"):
        options = ("--ignore-not-found", "--timeout=100s")
        plane.kubectl("delete", *options, "-k", str(helm.CHART / folder))


def operator_log(plane: ControlPlane) -> str:
    """The end of what its replicas logged."""
    return plane.kubectl("logs", "--namespace", NAMESPACE, _ITS_LABEL, "--prefix")


def kinds(plane: ControlPlane) -> list[str]:
    """Our kinds, as kubectl names them."""
    found = plane.kubectl("get", "crd", "-o=name").split()
    return [each for each in found if each.endswith(f".{GROUP}")]


def objects(plane: ControlPlane) -> dict[str, str]:
    """Every object of the cluster: its kind, namespace and name by its UID."""
    listed = plane.kubectl("api-resources", "--verbs=list", "-o=name").split()
    line = "{.metadata.uid} {.kind} {.metadata.namespace}/{.metadata.name}"
    form = "-o=jsonpath={range .items[*]}" + line + '{"\\n"}{end}'
    found = plane.kubectl("get", ",".join(listed), "--all-namespaces", form)
    lines = (each.split(" ", 1) for each in found.splitlines())
    return {uid: name for uid, name in lines if uid}


def left(
    plane: ControlPlane, before: Container[str], *, deadline_s: float = _DEADLINE_S
) -> list[str]:
    """The objects whose UIDs were not there before, but for those of ``STAYS``, once the garbage
    collector has had its time."""

    def found() -> list[str]:
        new = (name for uid, name in objects(plane).items() if uid not in before)
        return sorted(name for name in new if name.partition(" ")[0] not in STAYS)

    end_s = time.monotonic() + deadline_s
    while (last := found()) and time.monotonic() < end_s:
        time.sleep(1)
    return last


def scrape_targets(plane: ControlPlane, process: str) -> list[dict[str, Any]]:
    """The ports with metrics of all running pods of a process, as groups of targets of Prometheus,
    with the labels that a PodMonitor gives them. Debian's Prometheus cannot discover pods."""
    selected = (f"--selector=app={process}", "-o=json")
    pods = json.loads(plane.kubectl("-n", NAMESPACE, "get", "pods", *selected))["items"]
    return [
        {
            "targets": [f"{pod['status']['podIP']}:{port['containerPort']}"],
            "labels": {"namespace": NAMESPACE, "pod": pod["metadata"]["name"]},
        }
        for pod in pods
        for port in pod["spec"]["containers"][0].get("ports", ())
        if port["name"] == METRICS_PORT
        and "podIP" in pod["status"]
        and "deletionTimestamp" not in pod["metadata"]
    ]


def metrics_reader(plane: ControlPlane, process: str) -> Reader:
    """Of the pods of this process."""
    return Reader.of(plane, process, host=f"{process}.{NAMESPACE}")


def _operators(plane: ControlPlane) -> set[str]:
    return set(plane.kubectl("get", *_ITS_PODS, "-o=name").split())


def _until_operators(plane: ControlPlane, are_expected: Callable[[set[str]], bool]) -> None:
    """Return once the pods of the operator are these, and ready: the status of their Deployment may
    be that of the pods before."""
    waiting.until(
        lambda: are_expected(_operators(plane)),
        "the replicas of the operator",
        deadline_s=_DEADLINE_S,
        evidence=lambda: str(_operators(plane)),
    )
    if _operators(plane):
        plane.kubectl("wait", "--for=condition=Ready", *_ITS_PODS, f"--timeout={_DEADLINE_S:.0f}s")


def _until_ready(plane: ControlPlane, workload: str) -> None:
    plane.kubectl("--namespace", NAMESPACE, "rollout", "status", workload, "--timeout=110s")


def _helm(plane: ControlPlane, verb: str, *arguments: str) -> None:
    helm.run(verb, "--namespace", NAMESPACE, *arguments, plane=plane)


def _until_no_pods(plane: ControlPlane) -> None:
    gone = ("wait", "--for=delete", "pod", "--all", "--timeout=110s")
    plane.kubectl("-n", NAMESPACE, *gone)
