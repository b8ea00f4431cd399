"""Mark the job that a cycle hangs on, without the event loop, which may hang too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubernetes import client
from railwright_api import names
from railwright_kube import connection
from railwright_operator.watch.jobs import CachedJob

DEADLINE_S = 2.0


def write(kubeconfig: str | None, cached: CachedJob, mark: Mapping[str, Any]) -> None:
    """Write ``schedulingBackoff`` into the job's status, if it is still the same job. Blocks for at
    most ``DEADLINE_S``; raises what the ``kubernetes`` package does."""
    metadata = cached.raw["metadata"]
    api = client.CustomObjectsApi(connection.blocking_client(kubeconfig, deadline_s=DEADLINE_S))
    api.patch_namespaced_custom_object_status(
        names.GROUP,
        names.VERSION,
        metadata["namespace"],
        names.TRAINING_JOBS,
        metadata["name"],
        {"metadata": {"uid": cached.uid}, "status": {"schedulingBackoff": dict(mark)}},
    )
