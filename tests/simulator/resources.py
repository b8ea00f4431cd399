"""The resources of the simulated API server: where they are served, and which rules they follow.

Each rule is that of the kind's strategy in the real server.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import orjson

from railwright_api import names


@dataclass(frozen=True, eq=False)
class Resource:
    """A resource, by its path for the whole cluster.

    ``status``: it has the status subresource. ``generation``: its objects count changes of their
    spec. ``unconditional``: a PUT without a resourceVersion is accepted. ``creates_on_update``: a
    PUT of a new name creates the object. ``returns_deleted``: a DELETE answers with the object.
    ``custom``: it is defined by a CRD.
    """

    path: str
    kind: str
    namespaced: bool = True
    status: bool = False
    generation: bool = False
    unconditional: bool = True
    creates_on_update: bool = False
    returns_deleted: bool = False
    custom: bool = False

    api_version: str = dataclasses.field(init=False)
    plural: str = dataclasses.field(init=False)
    group: str = dataclasses.field(init=False)
    qualified: str = dataclasses.field(init=False)
    type_prefix: bytes = dataclasses.field(init=False)
    """How the JSON of each stored object begins."""

    def __post_init__(self) -> None:
        prefix, _, plural = self.path.rpartition("/")
        api_version = prefix.removeprefix("/apis/").removeprefix("/api/")
        group = api_version.rpartition("/")[0]
        fields = {
            "api_version": api_version,
            "plural": plural,
            "group": group,
            "qualified": f"{plural}.{group}" if group else plural,
            "type_prefix": orjson.dumps({"kind": self.kind, "apiVersion": api_version})[:-1] + b",",
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def details(self, name: str) -> dict[str, Any]:
        """The details of a Status about an object."""
        group = {"group": self.group} if self.group else {}
        return {"name": name, **group, "kind": self.plural}


def _custom(plural: str, kind: str, *, namespaced: bool, status: bool = False) -> Resource:
    return Resource(
        f"/apis/{names.API_VERSION}/{plural}",
        kind,
        namespaced=namespaced,
        status=status,
        generation=True,
        unconditional=False,
        custom=True,
    )


PODS = Resource("/api/v1/pods", "Pod", status=True, generation=True, returns_deleted=True)
NODES = Resource("/api/v1/nodes", "Node", namespaced=False, status=True)
RESOURCES = {
    each.path: each
    for each in (
        PODS,
        NODES,
        Resource("/api/v1/configmaps", "ConfigMap"),
        Resource("/api/v1/events", "Event", creates_on_update=True),
        Resource("/apis/events.k8s.io/v1/events", "Event", creates_on_update=True),
        Resource(
            "/apis/coordination.k8s.io/v1/leases",
            "Lease",
            unconditional=False,
            creates_on_update=True,
        ),
        Resource(
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            "PriorityClass",
            namespaced=False,
            generation=True,
        ),
        Resource(
            "/apis/node.k8s.io/v1/runtimeclasses",
            "RuntimeClass",
            namespaced=False,
            unconditional=False,
            creates_on_update=True,
        ),
        _custom(names.TRAINING_JOBS, "TrainingJob", namespaced=True, status=True),
        _custom(names.PLACEMENTS, "Placement", namespaced=True),
        _custom(names.PROFILES, "Profile", namespaced=True),
        _custom(names.QUEUES, "Queue", namespaced=False, status=True),
        _custom(names.FABRICS, "Fabric", namespaced=False, status=True),
        _custom(names.LEDGERS, "Ledger", namespaced=False),
        _custom(names.NODE_HEALTHS, "NodeHealth", namespaced=False),
    )
}


@dataclass(frozen=True, slots=True)
class Target:
    """What the path of a request names; an absent part is empty."""

    resource: Resource
    namespace: str
    name: str
    subresource: str

    @property
    def key(self) -> str:
        """The key of the object in its collection, in whose order lists are."""
        return f"{self.namespace}/{self.name}" if self.resource.namespaced else self.name

    @property
    def is_served(self) -> bool:
        """Whether the resource has this subresource."""
        match self.subresource:
            case "":
                return True
            case "status":
                return self.resource.status
            case _:
                return self.resource is PODS and self.subresource == "binding"


def parse(path: str) -> Target | None:
    """The target of a request; None if no resource is served there."""
    parts = path.split("/")[1:]
    depth = 2 if parts[0] == "api" else 3
    prefix, rest = "/" + "/".join(parts[:depth]), parts[depth:]
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces":
        namespace, rest = unquote(rest[1]), rest[2:]
    if not 1 <= len(rest) <= 3:
        return None
    resource = RESOURCES.get(f"{prefix}/{rest[0]}")
    name = unquote(rest[1]) if len(rest) > 1 else ""
    if resource is None or bool(namespace) > resource.namespaced:
        return None
    if name and resource.namespaced and not namespace:
        return None
    return Target(resource, namespace, name, rest[2] if len(rest) > 2 else "")
