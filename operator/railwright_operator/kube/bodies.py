"""Request bodies that carry a precondition: a write that meets another object changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Body = dict[str, Any]


def binding(name: str, uid: str, *, node: str) -> Body:
    """Bind the pod with this UID; one made again under the same name is refused (409)."""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "uid": uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


def deletion(uid: str) -> Body:
    """Delete the object with this UID only, with the grace that it asks for."""
    return {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": uid},
        "propagationPolicy": "Background",
    }


def status_patch(status: Mapping[str, Any], *, resource_version: str) -> Body:
    """A merge patch of the status, refused (409) when the object changed since this version."""
    return {"metadata": {"resourceVersion": resource_version}, "status": dict(status)}


def token_review(token: str, audience: str) -> Body:
    """Ask whose token this is, if it is good for this audience."""
    return {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token, "audiences": [audience]},
    }
