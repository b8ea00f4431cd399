"""Volumes that real kubelets cannot mount: what the job shows, and that it starts once it can."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from fixtures.training import LiveJob, Training, script
from railwright_testbed import Testbed

Run = Callable[[Training], LiveJob]
Json = dict[str, Any]

CLAIM = {"persistentVolumeClaim": {"claimName": "data"}}
CONFIG_MAP = {"configMap": {"name": "data"}}


def config_map(namespace: str, folder: str) -> list[Json]:
    about = {"name": "data", "namespace": namespace}
    return [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": about}]


def bound_claim(namespace: str, folder: str) -> list[Json]:
    """A claim and the volume that was made for it."""
    common = {"storageClassName": "", "accessModes": ["ReadWriteMany"]}
    size, volume_name = {"storage": "1Gi"}, f"data-{namespace}"
    claim = common | {"volumeName": volume_name, "resources": {"requests": size}}
    reference = {"namespace": namespace, "name": "data"}
    volume = common | {"capacity": size, "claimRef": reference, "hostPath": {"path": folder}}
    of_claim, of_volume = reference, {"name": volume_name}
    return [
        {"apiVersion": "v1", "kind": kind, "metadata": about, "spec": spec}
        for kind, about, spec in (
            ("PersistentVolumeClaim", of_claim, claim),
            ("PersistentVolume", of_volume, volume),
        )
    ]


def mounting(bed: Testbed, source: Json, **spec: Any) -> Training:
    """A job of one pod that ends once it runs; it mounts a volume from ``source``."""
    plain = Training("mounts", script("pass"), image=bed.image, nodes=1)
    (worker,) = plain.manifest("")["spec"]["roles"]
    pod = worker["template"]["spec"]
    pod["volumes"] = [{"name": "data", **source}]
    pod["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    return Training("mounts", (), spec={"roles": [worker], **spec})


@pytest.mark.parametrize(
    ("source", "cause", "created"),
    [
        (CLAIM, 'persistentvolumeclaims "data" not found', bound_claim),
        (CONFIG_MAP, 'configmap "data" not found', config_map),
    ],
    ids=["claim", "config map"],
)
def test_job_names_missing_volume_and_starts_with_it(
    bed: Testbed,
    run: Run,
    source: Json,
    cause: str,
    created: Callable[[str, str], list[Json]],
) -> None:
    job = run(mounting(bed, source))
    status = job.until(lambda status: status.get("reason") == "FailedMount", "the failed mount")
    assert "pod mounts-worker-0-1: " in status["message"]
    assert cause in status["message"]
    assert status["phase"] == "Starting"
    for each in created(job.namespace, str(bed.shared_directory)):
        bed.control_plane.kubectl("apply", "-f", "-", stdin=json.dumps(each))
    assert job.until_phase("Succeeded")["attempt"] == 1


def test_start_that_times_out_names_missing_volume(bed: Testbed, run: Run) -> None:
    spec = {"startTimeoutSeconds": 40, "failurePolicy": {"backoffLimit": 0}}
    job = run(mounting(bed, CLAIM, **spec))
    end = job.until_phase("Failed")["lastTermination"]
    assert end["cause"] == "StartTimedOut"
    assert "(FailedMount: pod mounts-worker-0-1: " in end["message"]
    assert 'persistentvolumeclaims "data" not found' in end["message"]
