"""What the command line reads of a cluster: nodes, the Fabric, network files, a job."""

from __future__ import annotations

import base64
import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

from pydantic import ValidationError
from urllib3.exceptions import HTTPError

from kubernetes import client, config
from railwright_api import names, schema
from railwright_cli import gang
from railwright_cli.arguments import UsageError
from railwright_cli.gang import ABSENT, Gang, Manifest
from railwright_topology.sources.formats import File

NAMESPACE = os.environ.get("RAILWRIGHT_NAMESPACE", "railwright-system")
"""The namespace of the controllers, which has the topology files."""

PAGE_OBJECTS = 500
DEADLINE_S = 30

FAILED = (client.ApiException, config.ConfigException, HTTPError, ValidationError)
"""Failures between here and the API server."""


class ClusterReader:
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
        """The Fabric; empty if there is none."""
        get = self._kinds.get_cluster_custom_object
        return _object(get, names.FABRICS, names.SINGLETON) or {}

    def files(self) -> Iterator[File]:
        """The topology files of the site."""
        selector = f"{names.LABEL_FABRIC}={names.SINGLETON}"
        page = functools.partial(self._core.list_namespaced_config_map, NAMESPACE)
        for each in _all(functools.partial(page, label_selector=selector)):
            packed = (each.binary_data or {}).items()
            contents = {name: base64.b64decode(data) for name, data in packed} | (each.data or {})
            for name, content in sorted(contents.items()):
                yield File(each.metadata.name, name, content)

    def gang(self, namespace: str, name: str) -> Gang:
        """A job as it runs; without nodes if it does not. Raises ApiException if there is none."""
        get = functools.partial(self._kinds.get_namespaced_custom_object, namespace=namespace)
        found = _object(get, names.TRAINING_JOBS, name, is_optional=False)
        job, placement, profile = schema.read(Manifest, found), ABSENT, ABSENT
        if job.status.nodes:
            found = _object(get, names.PLACEMENTS, names.placement_name(name, job.status.attempt))
            if not found:
                missing = names.placement_name(name, job.status.attempt)
                raise UsageError(f"{namespace}/{name}: its Placement {missing} is missing")
            placement = schema.read(Manifest, found)
            found = _object(get, names.PROFILES, name)
            profile = schema.read(Manifest, found) if found else ABSENT
        return gang.of(job, placement, profile)


def _object(get: Callable[..., Any], plural: str, name: str, *, is_optional: bool = True) -> Any:
    """One of our objects; None if it is optional and there is none."""
    try:
        return get(
            group=names.GROUP,
            version=names.VERSION,
            plural=plural,
            name=name,
            _request_timeout=DEADLINE_S,
        )
    except client.ApiException as error:
        if error.status != 404 or not is_optional:
            raise
        return None


def _all(page: Callable[..., Any]) -> Iterator[Any]:
    following = None
    while following != "":
        found = page(limit=PAGE_OBJECTS, _continue=following, _request_timeout=DEADLINE_S)
        yield from found.items
        following = found.metadata._continue or ""
