"""What ``railwright topology`` reads of a cluster: nodes, the Fabric, network files, a job."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from railwright_api import names, routes, schema
from railwright_cli import gang
from railwright_cli.api_objects import ConfigMapView
from railwright_cli.api_server import CORE, ApiServer
from railwright_cli.errors import UsageError
from railwright_cli.gang import ABSENT, Gang, Manifest
from railwright_cli.inventory import NodeView
from railwright_topology.sources.formats import File

NAMESPACE = os.environ.get("RAILWRIGHT_NAMESPACE", "railwright-system")
"""The namespace of the controllers, which has the topology files."""

Object = dict[str, Any]


def nodes(server: ApiServer) -> dict[str, NodeView]:
    """Every node by its name."""
    return {node.metadata.name: node for node in server.items(f"{CORE}/nodes", NodeView)}


def fabric(server: ApiServer) -> Object:
    """The Fabric; empty if there is none."""
    return server.find(routes.one(names.FABRICS, names.SINGLETON), Object) or {}


def files(server: ApiServer) -> Iterator[File]:
    """The topology files of the site."""
    query = {"labelSelector": f"{names.LABEL_FABRIC}={names.SINGLETON}"}
    for each in server.items(f"{CORE}/namespaces/{NAMESPACE}/configmaps", ConfigMapView, query):
        contents: dict[str, str | bytes] = {**each.data, **each.binary_data}
        for name, content in sorted(contents.items()):
            yield File(each.metadata.name, name, content)


def placed(server: ApiServer, namespace: str, name: str) -> Gang:
    """A job as it runs; without nodes if it does not. Raises RequestError if there is none."""
    found = server.get(routes.one(names.TRAINING_JOBS, name, namespace=namespace), Object)
    job, placement, profile = schema.read(Manifest, found), ABSENT, ABSENT
    if job.status.nodes:
        of_attempt = names.placement_name(name, job.status.attempt)
        path = routes.one(names.PLACEMENTS, of_attempt, namespace=namespace)
        stored = server.find(path, Object)
        if not stored:
            raise UsageError(f"{namespace}/{name}: its Placement {of_attempt} is missing")
        placement = schema.read(Manifest, stored)
        recorded = server.find(routes.one(names.PROFILES, name, namespace=namespace), Object)
        profile = schema.read(Manifest, recorded) if recorded else ABSENT
    return gang.of(job, placement, profile)
