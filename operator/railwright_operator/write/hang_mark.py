"""Mark the job that a cycle hangs on, without the event loop, which may hang too."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, cast

from kubernetes.client.exceptions import ApiException

from kubernetes import client
from railwright_api import names
from railwright_kube import connection
from railwright_operator.watch.jobs import CachedJob

DEADLINE_S = 1.0
"""For each of at most three requests."""


def write(kubeconfig: str | None, cached: CachedJob, mark: Mapping[str, Any]) -> None:
    """Write ``schedulingBackoff`` into the job's status, if it is still the same job. Raises what
    the ``kubernetes`` package does.

    The API server ignores a UID in a patch of a custom resource's status, so the patch names the
    version. If the job has a newer one, it is read and compared.
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

    def patch(version: str) -> None:
        body = {
            "metadata": {"resourceVersion": version},
            "status": {"schedulingBackoff": dict(mark)},
        }
        api.patch_namespaced_custom_object_status(*job, body)

    try:
        patch(metadata["resourceVersion"])
    except ApiException as error:
        if error.status != HTTPStatus.CONFLICT:
            raise
        found = cast("Mapping[str, Any]", api.get_namespaced_custom_object(*job))["metadata"]
        if found["uid"] == cached.uid:
            patch(found["resourceVersion"])
