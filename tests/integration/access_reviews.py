"""What the API server says that a user may do."""

from __future__ import annotations

from typing import Any

from railwright_testbed.api_client import ApiClient

REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


def may(client: ApiClient, user: str, verb: str, *, group: str, what: str, namespace: str) -> bool:
    """Whether the user may do this to ``what``: resource, resource/subresource, or
    resource=name."""
    what, _, name = what.partition("=")
    resource, _, subresource = what.partition("/")
    attributes = {
        "verb": verb,
        "group": group,
        "resource": resource,
        "subresource": subresource,
        "namespace": namespace,
        "name": name,
    }
    return is_allowed(client, user, {"resourceAttributes": attributes})


def is_allowed(client: ApiClient, user: str, request: dict[str, Any]) -> bool:
    """Whether the user may send this request, as a review describes it."""
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user} | request,
    }
    return bool(client.post(REVIEWS, body)["status"]["allowed"])
