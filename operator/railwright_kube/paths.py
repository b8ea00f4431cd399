"""Where things are on the API server: one function a place, every part quoted."""

from __future__ import annotations

from urllib.parse import quote

NODES = "/api/v1/nodes"
PODS = "/api/v1/pods"
SIGNING_KEYS = "/openid/v1/jwks"
AUTHENTICATION_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


def pods(namespace: str) -> str:
    """The pods of a namespace; ``PODS`` is those of all."""
    return f"/api/v1/namespaces/{_part(namespace)}/pods"


def pod(namespace: str, name: str) -> str:
    """One pod."""
    return f"{pods(namespace)}/{_part(name)}"


def binding(namespace: str, name: str) -> str:
    """Where a pod is bound to a node: POST ``bodies.binding``."""
    return f"{pod(namespace, name)}/binding"


def config_maps(namespace: str) -> str:
    """The ConfigMaps of a namespace."""
    return f"/api/v1/namespaces/{_part(namespace)}/configmaps"


def config_map(namespace: str, name: str) -> str:
    """One ConfigMap."""
    return f"{config_maps(namespace)}/{_part(name)}"


def secret(namespace: str, name: str) -> str:
    """One Secret."""
    return f"/api/v1/namespaces/{_part(namespace)}/secrets/{_part(name)}"


def kubelet_lease(node: str) -> str:
    """The Lease that a node's kubelet renews."""
    return f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{_part(node)}"


def events(namespace: str) -> str:
    """The events of a namespace, of the events.k8s.io group."""
    return f"/apis/events.k8s.io/v1/namespaces/{_part(namespace)}/events"


def status(path: str) -> str:
    """The status subresource of the object at ``path``."""
    return f"{path}/status"


def _part(value: str) -> str:
    assert value not in ("", ".", ".."), f"a path part is {value!r}, expected a name"
    return quote(value, safe="")
