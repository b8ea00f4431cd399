"""Mark the job that a cycle hangs on, without the event loop, which may hang too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from kubernetes import client
from railwright_api import names
from railwright_kube import connection
from railwright_operator.watch.jobs import CachedJob

DEADLINE_S = 2.0
"""For each of two requests."""


def write(kubeconfig: str | None, cached: CachedJob, mark: Mapping[str, Any]) -> None:
    """Write ``schedulingBackoff`` into the job's status, if it is still the same job. Raises what
    the ``kubernetes`` package does.

    The job is read first, and the patch names its version: the API server ignores a UID in a patch
    of a custom resource's status.
    """
    metadata = cached.raw["metadata"]
    api = client.CustomObjectsApi(connection.blocking_client(kubeconfig, deadline_s=DEADLINE_S))
    job = (
        names.GROUP,
        names.VERSION,
        metadata["namespace"],
        names.TRAINING_JOBS,
        metadata["name"],
    )
    found = cast("Mapping[str, Any]", api.get_namespaced_custom_object(*job))["metadata"]
    if found["uid"] == cached.uid:
        body = {
            "metadata": {"resourceVersion": found["resourceVersion"]},
            "status": {"schedulingBackoff": dict(mark)},
        }
        api.patch_namespaced_custom_object_status(*job, body)
