"""The mark on a job that a cycle hangs on, on a real API server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from fixtures import shell
from integration import manifests
from railwright_api import names
from railwright_operator.watch.jobs import CachedJob
from railwright_operator.write import hang_mark
from railwright_testbed import ControlPlane
from railwright_testbed.api_client import ApiClient

MARK = {"stage": "Decision", "generation": 1, "hangs": 1}


def _path(namespace: str, name: str = "") -> str:
    path = f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.TRAINING_JOBS}"
    return f"{path}/{name}" if name else path


def _cached(job: dict[str, Any]) -> CachedJob:
    return cast("CachedJob", SimpleNamespace(raw=job, uid=job["metadata"]["uid"]))


def test_hang_marks_the_job_and_none_of_its_name(
    control_plane: ControlPlane, admin: ApiClient, namespace: str
) -> None:
    """The version that the cycle hangs on may be an old one."""
    kubeconfig = shell.connect(control_plane)
    hung = admin.post(_path(namespace), manifests.job("hung"))
    path = _path(namespace, "hung")
    admin.patch(path, {"spec": {"suspend": True}})
    hang_mark.write(kubeconfig, _cached(hung), MARK)
    marked = admin.get(path)["status"]["schedulingBackoff"]
    assert (marked["stage"], marked["hangs"]) == ("Decision", 1)
    admin.delete(path)
    admin.post(_path(namespace), manifests.job("hung"))
    hang_mark.write(kubeconfig, _cached(hung), MARK)
    assert "status" not in admin.get(path)
