"""Request bodies that carry a precondition: a write that meets another object changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Body = dict[str, Any]


def manifest(api_version: str, kind: str, metadata: Body, spec: Mapping[str, Any]) -> Body:
    """A whole object, to be created or replaced."""
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def binding(name: str, uid: str, *, node: str) -> Body:
    """Bind the pod with this UID; one made again under the same name is refused (409)."""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "uid": uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


def deletion(uid: str) -> Body:
    """The body of a deletion of this UID only, with the grace period of the object."""
    return {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": uid},
        "propagationPolicy": "Background",
    }


def merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> Body:
    """The merge patch (RFC 7386) that replaces one object by the other; empty if they are equal.

    A merge patch merges objects at every depth: a field that ``after`` lacks is removed only by an
    explicit null. None means absent on both sides.
    """
    patch: Body = {}
    for name in (*before, *(name for name in after if name not in before)):
        old, new = before.get(name), after.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            if inner := merge_patch(old, new):
                patch[name] = inner
        elif old != new:
            patch[name] = new
    return patch


def status_patch(status: Mapping[str, Any], *, resource_version: str) -> Body:
    """A merge patch of the status, refused (409) when the object changed since this version."""
    return {"metadata": {"resourceVersion": resource_version}, "status": dict(status)}
