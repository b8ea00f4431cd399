"""What the API server makes of an object that a client writes: pure functions on decoded JSON.

They return new objects and change none; unchanged parts are shared with the old ones.
"""

from __future__ import annotations

from typing import Any

from simulator.resources import PODS, Resource

Json = dict[str, Any]

DELETION = ("deletionTimestamp", "deletionGracePeriodSeconds")
"""The metadata that only a DELETE sets."""

EMPTY: tuple[Json, list[Any]] = ({}, [])
"""Not stored in metadata."""


def created(resource: Resource, sent: Json, *, namespace: str, uid: str, now: str) -> Json:
    """The object that a request creates, without its resourceVersion; ``now`` is the time."""
    metadata = {name: value for name, value in sent["metadata"].items() if value not in EMPTY}
    metadata |= {"uid": uid, "creationTimestamp": now, "namespace": namespace}
    if not namespace:
        del metadata["namespace"]
    if resource.generation:
        metadata["generation"] = 1
    new = _typed(resource, sent, metadata)
    if resource is PODS:
        new["status"] = {"phase": "Pending"}
    elif resource.custom and resource.status:
        new.pop("status", None)
    return new


def without_deletion(sent: Json) -> Json:
    """The object of a POST without what it must not say. That of a PUT is created with it."""
    metadata = {name: each for name, each in sent["metadata"].items() if name not in DELETION}
    return sent | {"metadata": metadata}


def replaced(resource: Resource, old: Json, sent: Json) -> Json:
    """The object after a write of all but its status."""
    metadata = _metadata(old, sent)
    new = _typed(resource, sent, metadata)
    if resource.status:
        _keep(new, old, "status")
    if resource.generation and new.get("spec") != old.get("spec"):
        metadata["generation"] += 1
    return new


def with_status(resource: Resource, old: Json, sent: Json) -> Json:
    """The object after a write of its status subresource."""
    if resource.custom:
        new = dict(old)
        _keep(new, sent, "status")
        return new
    metadata = _metadata(old, sent)
    new = _typed(resource, sent, metadata)
    _keep(new, old, "spec")
    if resource is PODS:
        _keep(metadata, old["metadata"], "ownerReferences")
    return new


def immutable_change(resource: Resource, old: Json, new: Json) -> str:
    """The field that a write must not change and does, or an empty string.

    A deleted object gets no further finalizers.
    """
    before, after = old["metadata"], new["metadata"]
    if after["uid"] != before["uid"]:
        return "metadata.uid"
    added = {*after.get("finalizers", ())}.difference(before.get("finalizers", ()))
    if added and "deletionTimestamp" in before:
        return "metadata.finalizers"
    if resource is PODS and new["spec"].get("nodeName") != old["spec"].get("nodeName"):
        return "spec.nodeName"
    return ""


def bound(pod: Json, node: str, *, now: str) -> Json:
    """The pod after its binding to a node."""
    status = pod.get("status", {})
    scheduled = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": now,
    }
    others = [each for each in status.get("conditions", ()) if each["type"] != "PodScheduled"]
    return pod | {
        "spec": pod["spec"] | {"nodeName": node},
        "status": status | {"conditions": [*others, scheduled]},
    }


def merged(old: Any, patch: Any) -> Any:
    """The result of a merge patch (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    new = dict(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        if value is None:
            new.pop(name, None)
        else:
            new[name] = merged(new.get(name), value)
    return new


def _typed(resource: Resource, sent: Json, metadata: Json) -> Json:
    """The object with its kind first, as its encoded form must begin."""
    kind = {"kind": resource.kind, "apiVersion": resource.api_version}
    return {**kind, **sent, **kind, "metadata": metadata}


def _metadata(old: Json, sent: Json) -> Json:
    """The metadata of a write, with what the server sets as it is. A UID is a precondition."""
    held = old["metadata"]
    metadata = {name: value for name, value in sent["metadata"].items() if value not in EMPTY}
    metadata.setdefault("uid", held["uid"])
    for name in (
        *DELETION,
        "creationTimestamp",
        "generation",
        "name",
        "namespace",
        "resourceVersion",
    ):
        _keep(metadata, held, name)
    return metadata


def _keep(new: Json, source: Json, name: str) -> None:
    """Set a field to its value in the source, or remove it if that has none."""
    if name in source:
        new[name] = source[name]
    else:
        new.pop(name, None)
