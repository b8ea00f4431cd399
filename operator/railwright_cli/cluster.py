"""What the command line reads of a cluster: nodes, the Fabric, files about the network, a job."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterator
from typing import Any

from urllib3.exceptions import HTTPError

from kubernetes import client, config
from railwright_api import names
from railwright_cli import gang
from railwright_cli.gang import Gang
from railwright_topology.sources.formats import File

NAMESPACE = os.environ.get("RAILWRIGHT_NAMESPACE", "railwright-system")
"""The operator's, which has the files."""

PAGE_OBJECTS = 500
DEADLINE_S = 30

FAILED = (client.ApiException, config.ConfigException, HTTPError)
"""What goes wrong between here and the API server."""


class Cluster:
    """The cluster of the current context of the kubeconfig."""

    def __init__(self) -> None:
        config.load_config()  # type: ignore[no-untyped-call]
        self._core = client.CoreV1Api()
        self._kinds = client.CustomObjectsApi()

    def labels(self) -> dict[str, dict[str, str]]:
        """The labels of every node."""
        nodes = _all(self._core.list_node)
        return {node.metadata.name: node.metadata.labels or {} for node in nodes}

    def fabric(self) -> Any:
        """The Fabric as the operator tells of it; empty if there is none."""
        try:
            return self._kinds.get_cluster_custom_object(
                names.GROUP,
                names.VERSION,
                names.FABRICS,
                names.SINGLETON,
                _request_timeout=DEADLINE_S,
            )
        except client.ApiException as error:
            if error.status == 404:
                return {}
            raise

    def files(self) -> list[File]:
        """The files about the network that the operator is given."""
        selector = f"{names.LABEL_FABRIC}={names.SINGLETON}"

        def page(**query: Any) -> Any:
            return self._core.list_namespaced_config_map(
                NAMESPACE, label_selector=selector, **query
            )

        found = []
        for each in _all(page):
            contents: dict[str, str | bytes] = {
                name: base64.b64decode(packed) for name, packed in (each.binary_data or {}).items()
            }
            contents |= each.data or {}
            found += [File(each.metadata.name, *content) for content in sorted(contents.items())]
        return found

    def gang(self, namespace: str, name: str) -> Gang:
        """A job as it runs; without nodes if it does not."""
        job = self._namespaced(namespace, names.TRAINING_JOBS, name)
        status = job.get("status") or {}
        placement = None
        if status.get("nodes"):
            try:
                placed = f"{name}-{status.get('attempt')}"
                placement = self._namespaced(namespace, names.PLACEMENTS, placed)
            except client.ApiException as error:
                if error.status != 404:
                    raise
        return gang.of(job, placement)

    def _namespaced(self, namespace: str, plural: str, name: str) -> Any:
        return self._kinds.get_namespaced_custom_object(
            names.GROUP, names.VERSION, namespace, plural, name, _request_timeout=DEADLINE_S
        )


def _all(page: Callable[..., Any]) -> Iterator[Any]:
    following = None
    while following != "":
        found = page(limit=PAGE_OBJECTS, _continue=following, _request_timeout=DEADLINE_S)
        yield from found.items
        following = found.metadata._continue or ""
