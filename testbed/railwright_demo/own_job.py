"""The training on somebody's cluster: examples/ddp, without GPUs, all pods on one node.

Its checkpoints are on a volume that one node mounts (ReadWriteOnce), as every StorageClass provides
it. So each rank is a role of its own: pods of different roles may share a node. The pods fulfil Pod
Security `restricted`.
"""

from __future__ import annotations

import yaml

from railwright_demo.manifests import NAMESPACE
from railwright_testbed import example_job
from railwright_testbed.api_client import Json

NUM_PODS = 4
CPU_MILLIS, MEMORY_MIB = 250, 512
"""Of each pod."""

VOLUME = "checkpoints"
STORAGE = "1Gi"
CHECKPOINTS, SCRIPT_FOLDER = "/checkpoints", "/examples/ddp"
USER = 65532
HOSTNAME = "kubernetes.io/hostname"
# Without torch, or if the volume cannot be written, this ends with an error that says so.
CHECKS = f"import tempfile, torch; tempfile.TemporaryFile(dir={CHECKPOINTS!r})"


def claim(storage_class: str) -> Json:
    """The volume of the checkpoints."""
    return {
        "metadata": {"name": VOLUME},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": STORAGE}},
        },
    }


def script() -> Json:
    """The ConfigMap with train.py."""
    return {
        "metadata": {"name": "script"},
        "data": {"train.py": (example_job.EXAMPLE / "train.py").read_text()},
    }


def first_pod(image: str) -> Json:
    """A pod for kube-scheduler: it selects a node with room for all pods of the job, where the
    volume is then bound. It checks the image and the volume."""
    container = {
        "name": "check",
        "image": image,
        "command": ["python3", "-c", CHECKS],
        "resources": {"requests": _requests(NUM_PODS)},
        "volumeMounts": [{"name": VOLUME, "mountPath": CHECKPOINTS}],
    }
    spec = _secured({"restartPolicy": "Never", "containers": [container]})
    return {"metadata": {"name": "check"}, "spec": spec}


def manifest(name: str, *, image: str, hostname: str, min_step_s: float) -> Json:
    """The TrainingJob, on the node with this value of its label for the host name."""
    job: Json = yaml.safe_load((example_job.EXAMPLE / "job.yaml").read_text())
    job["metadata"] = {"name": name, "namespace": NAMESPACE}
    (role,) = job["spec"]["roles"]
    pod = role["template"]["spec"]
    (container,) = pod["containers"]
    container["image"] = image
    container["command"] = example_job.command(f"{SCRIPT_FOLDER}/train.py", min_step_s=min_step_s)
    container["resources"] = {"requests": _requests(1)}
    container["volumeMounts"].append({"name": "script", "mountPath": SCRIPT_FOLDER})
    pod["nodeSelector"] = {HOSTNAME: hostname}
    template = {"spec": _secured(pod)}
    job["spec"]["roles"] = [
        {"name": f"worker{index}", "group": "train", "replicas": 1, "template": template}
        for index in range(NUM_PODS)
    ]
    return job


def _requests(pods: int) -> Json:
    return {"cpu": f"{pods * CPU_MILLIS}m", "memory": f"{pods * MEMORY_MIB}Mi"}


def _secured(spec: Json) -> Json:
    volumes = [
        {"name": VOLUME, "persistentVolumeClaim": {"claimName": VOLUME}},
        {"name": "script", "configMap": {"name": "script"}},
    ]
    context = {"runAsNonRoot": True, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER}
    for container in spec["containers"]:
        drop = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        container["securityContext"] = drop
    profile = {"seccompProfile": {"type": "RuntimeDefault"}}
    return {**spec, "securityContext": {**context, **profile}, "volumes": volumes}
