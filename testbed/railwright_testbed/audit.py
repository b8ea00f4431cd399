"""The audit log of the API server: requests, their users, and their responses.

It has every request of the operator and of the controllers, and every deletion of a pod by any
user: objects record who wrote them, but not who deleted them. A deletion has the pod's last
version, and so the revision of the deletion.
"""

from __future__ import annotations

import collections
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

Json = dict[str, Any]

OPERATOR = "system:serviceaccount:railwright-system:railwright-operator"
CONTROLLERS = "system:serviceaccount:railwright-system:railwright-controllers"

# Each request is one line: a watch when it begins, anything else when it is answered.
_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitManagedFields": True,
    "rules": [
        {
            "level": "RequestResponse",
            "verbs": ["delete"],
            "resources": [{"group": "", "resources": ["pods"]}],
            "omitStages": ["RequestReceived", "ResponseStarted"],
        },
        {
            "level": "Metadata",
            "users": [OPERATOR, CONTROLLERS],
            "verbs": ["watch"],
            "omitStages": ["RequestReceived", "ResponseComplete"],
        },
        {
            "level": "Metadata",
            "users": [OPERATOR, CONTROLLERS],
            "omitStages": ["RequestReceived", "ResponseStarted"],
        },
    ],
}
_LOG_MIB_MAX = 10_240


class Right(NamedTuple):
    """The permission that a request needs; ``namespace`` is empty for cluster objects."""

    verb: str
    group: str
    resource: str
    subresource: str
    namespace: str


@dataclass(frozen=True, slots=True)
class Request:
    """One request. ``resource`` is empty for one that names none, such as discovery; ``path`` is
    the path of its URL.

    ``received`` is when, RFC 3339 with microseconds. ``revision`` is the one after which a delete
    of a pod left it; None of anything else, and where another's delete came first.
    """

    user: str
    verb: str
    group: str
    resource: str
    subresource: str
    namespace: str
    name: str
    code: int
    received: str
    revision: int | None
    path: str

    @property
    def right(self) -> Right:
        """The permission that it needs."""
        return Right(self.verb, self.group, self.resource, self.subresource, self.namespace)

    @property
    def landed(self) -> bool:
        """Whether the request succeeded."""
        return 200 <= self.code < 300


def flags(directory: Path) -> list[str]:
    """The options of kube-apiserver for an audit log in ``log(directory)``."""
    policy = directory / "audit-policy.json"
    policy.write_text(json.dumps(_POLICY))
    return [
        f"--audit-policy-file={policy}",
        f"--audit-log-path={log(directory)}",
        f"--audit-log-maxsize={_LOG_MIB_MAX}",
    ]


def log(directory: Path) -> Path:
    """Where the account is, of the control plane in this folder."""
    return directory / "audit.log"


def requests(path: Path) -> Iterator[Request]:
    """All that were answered so far, one at a time."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            # The server may be writing the last one.
            if line.endswith("\n"):
                yield _request(json.loads(line))


def used(path: Path, user: str) -> collections.Counter[Right]:
    """The requests of a user so far, counted; ``total()`` is their number.

    Requests without a resource, such as discovery, are left out. Of other users than the operator
    and the controllers, only deletions of pods are recorded.
    """
    return collections.Counter(
        one.right for one in requests(path) if one.user == user and one.resource
    )


def paths_used(path: Path, user: str) -> set[tuple[str, str]]:
    """The verbs and paths of requests without a resource that succeeded or got 304."""
    return {
        (one.verb, one.path)
        for one in requests(path)
        if one.user == user and not one.resource and 200 <= one.code < 400
    }


def _request(event: Json) -> Request:
    asked = event.get("objectRef", {})
    left = event.get("responseObject", {}).get("metadata", {}).get("resourceVersion")
    return Request(
        user=event["user"]["username"],
        verb=event["verb"],
        group=asked.get("apiGroup", ""),
        resource=asked.get("resource", ""),
        subresource=asked.get("subresource", ""),
        namespace=asked.get("namespace", ""),
        name=asked.get("name", ""),
        code=event.get("responseStatus", {}).get("code", 0),
        received=event["requestReceivedTimestamp"],
        revision=None if left is None else int(left),
        path=urlsplit(event["requestURI"]).path,
    )
