"""Requests at random to an API server.

A request names what it takes from earlier responses, as UIDs and versions differ between servers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from fixtures import shell
from integration import manifests
from railwright_api import names
from simulator.object_updates import merged

Json = dict[str, Any]

WITH_FINALIZER = {"metadata": {"finalizers": ["example.com/held"]}}
CHANGES: list[Json] = [
    {},
    {"metadata": {"labels": {"app": "b"}}},
    {"metadata": {"labels": {"app": "c", "tier": "x"}}},
    {"metadata": {"labels": {"tier": None}}},
    {"metadata": {"annotations": {"example.com/note": "1"}}},
    {"metadata": {"annotations": None}},
    {"metadata": {"generation": 77}},
    {"metadata": {"finalizers": None}},
    {"metadata": {"finalizers": None}},
]
"""Merge patches that objects of all kinds allow."""

ANY_STATUS: list[Json] = [{"status": {"phase": "Running"}}]
"""Of a kind without the status subresource: it refuses them."""

ACTIONS = (
    *("create",) * 5,
    *("replace", "patch", "delete") * 3,
    *("patch status",) * 3,
    *("create refused", "replace status", "get", "list"),
)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind under test: where, an object, and merge patches that its schema allows.

    ``node`` is set for pods: where they run. As there is no such node, a controller deletes its
    pods, but not within 40 s. It also deletes pods that a finalizer keeps and that have no node, so
    none is made.
    """

    path: str
    manifest: Callable[[str], Json]
    changes: Sequence[Json] = ()
    statuses: Sequence[Json] = ()
    node: str = ""


@dataclass(frozen=True, slots=True)
class GeneratedRequest:
    """A request. ``body`` of a PUT is a merge patch of the object that was seen last, or else of
    ``base``.

    ``uid`` and ``version`` are preconditions: "", "current", "stale" or, of a UID, "other".
    """

    method: str
    path: str
    body: Json = field(default_factory=dict)
    uid: str = ""
    version: str = ""
    base: Json = field(default_factory=dict)


def kinds(namespace: str) -> list[Kind]:
    """The kinds under test. Objects without a namespace have its name as a prefix of theirs."""
    core = f"/api/v1/namespaces/{namespace}"
    return [
        *[_pods(f"{core}/pods", node=f"{namespace}-node")] * 6,
        *[_training_jobs(manifests.path(names.TRAINING_JOBS, namespace))] * 3,
        Kind(
            f"{core}/configmaps",
            lambda name: shell.config_map(name, a="1"),
            changes=[{"data": {"a": "2"}}, {"data": {"a": None, "b": "1"}}],
        ),
        Kind(
            f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases",
            lambda name: {"metadata": {"name": name}, "spec": {"holderIdentity": "a"}},
            changes=[{"spec": {"holderIdentity": "b"}}, {"spec": {"leaseDurationSeconds": 15}}],
        ),
        Kind(
            manifests.path(names.PROFILES, namespace),
            lambda name: manifests.cluster_object(
                "Profile", name, jobUID="u", attempt=1, document="{}"
            ),
            changes=[{"spec": {"attempt": 2}}, {"spec": {"document": "[]"}}],
        ),
        Kind(
            manifests.path(names.QUEUES),
            lambda name: manifests.cluster_object("Queue", f"{namespace}-{name}"),
            changes=[{"spec": {"description": "d"}}, {"status": {"waiting": 9}}],
            statuses=[{"status": {"waiting": 1, "running": 2}}, {"status": {"waiting": 3}}],
        ),
        Kind(
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            lambda name: {"metadata": {"name": f"{namespace}-{name}"}, "value": 5},
            changes=[{"description": "d"}],
        ),
        Kind(
            "/apis/node.k8s.io/v1/runtimeclasses",
            lambda name: {"metadata": {"name": f"{namespace}-{name}"}, "handler": "h"},
        ),
    ]


def _pods(path: str, *, node: str) -> Kind:
    return Kind(
        path,
        lambda name: shell.pod(name, labels={"app": "a"}),
        statuses=[
            {"status": {"phase": "Running"}},
            {"status": {"phase": "Running"}, "spec": {"nodeName": "ignored"}},
            {"status": {"phase": "Succeeded"}},
            {"status": {"phase": "Failed", "reason": "Evicted", "message": "full"}},
            {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
            {"status": {"message": "m"}, "metadata": {"labels": {"app": "d"}}},
        ],
        node=node,
    )


def _training_jobs(path: str) -> Kind:
    return Kind(
        path,
        manifests.job,
        changes=[
            {"spec": {"failurePolicy": {"backoffLimit": 5}}},
            {"spec": {"ttlSecondsAfterFinished": 60}},
            {"spec": {"ttlSecondsAfterFinished": None}},
            {"status": {"phase": "Failed"}},
            {"spec": {"suspend": True}, "status": {"phase": "Failed"}},
        ],
        statuses=[
            {"status": {"phase": "Queued", "attempt": 1}},
            {"status": {"phase": "Running"}},
            {"status": {"attempt": None}, "spec": {"suspend": True}},
            {"status": {"attempt": 2}, "metadata": {"labels": {"ignored": "yes"}}},
            {"status": None},
        ],
    )


def generate(rng: Random, namespace: str, *, count: int) -> list[GeneratedRequest]:
    """Requests for two objects of each kind."""
    found = kinds(namespace)
    return [_request(rng, rng.choice(found)) for _ in range(count)]


def _request(rng: Random, kind: Kind) -> GeneratedRequest:
    manifest = kind.manifest(rng.choice(("x", "y")))
    name = manifest["metadata"]["name"]
    path = f"{kind.path}/{name}"
    uid = rng.choice(("", "", "", "current", "current", "other"))
    version = rng.choice(("", "", "", "current", "current", "stale"))
    held = WITH_FINALIZER | {"spec": {"nodeName": kind.node}} if kind.node else WITH_FINALIZER
    any_change = CHANGES if kind.node else [*CHANGES, WITH_FINALIZER]
    change = rng.choice([*any_change, *kind.changes, *kind.changes])
    status = rng.choice(kind.statuses or ANY_STATUS)
    match rng.choice((*ACTIONS, *("bind",) * 6) if kind.node else ACTIONS):
        case "create":
            extra: Json = rng.choice(({}, {}, held, *kind.statuses[:1]))
            return GeneratedRequest("POST", kind.path, merged(manifest, extra))
        case "create refused":
            wrong = rng.choice(({"namespace": "other"}, {"resourceVersion": "5"}))
            return GeneratedRequest("POST", kind.path, merged(manifest, {"metadata": wrong}))
        case "bind":
            body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": kind.node}}
            return GeneratedRequest("POST", f"{path}/binding", body, uid, version)
        case "delete":
            grace: Json = rng.choice(({}, {}, {"gracePeriodSeconds": 5}, {"gracePeriodSeconds": 0}))
            return GeneratedRequest("DELETE", path, grace, uid, version)
        case "replace":
            version = rng.choice(("current", version))
            return GeneratedRequest("PUT", path, change, uid, version, manifest)
        case "replace status":
            version = rng.choice(("current", version))
            return GeneratedRequest("PUT", f"{path}/status", status, uid, version, manifest)
        case "patch":
            return GeneratedRequest("PATCH", path, change, uid, version)
        case "patch status":
            return GeneratedRequest("PATCH", f"{path}/status", status, uid, version)
        case "get":
            return GeneratedRequest("GET", path)
        case _:
            # Lists of the cluster have objects of other tests.
            labels, field = "labelSelector=app%3Db", f"fieldSelector=metadata.name%3D{name}"
            query = labels if "/namespaces/" in kind.path else field
            return GeneratedRequest("GET", f"{kind.path}?{query}")
