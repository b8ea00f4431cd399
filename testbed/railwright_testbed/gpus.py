"""Fake GPUs: an extended resource of the nodes that the API server itself maintains.

A kubelet without a device plugin takes `nvidia.com/gpu` out of its status whenever it starts. So
an admission policy puts it back into every status that a labelled node is about to get.
"""

from __future__ import annotations

from railwright_testbed import waiting
from railwright_testbed.api_client import ApiClient, Json
from railwright_testbed.node import GPUS_LABEL

RESOURCE = "nvidia.com/gpu"
_NAME = "gpus.testbed.railwright.dev"
_DEADLINE_S = 30.0
_GROUP = "/apis/admissionregistration.k8s.io/v1"


def install_policy(client: ApiClient) -> None:
    client.post(f"{_GROUP}/mutatingadmissionpolicies", _policy())
    client.post(
        f"{_GROUP}/mutatingadmissionpolicybindings",
        {"metadata": {"name": _NAME}, "spec": {"policyName": _NAME}},
    )
    # The policy takes effect after a moment, and a node created before would have no GPUs.
    waiting.until(
        lambda: shown_by(client.post("/api/v1/nodes?dryRun=All", _probe())) == 1,
        f"the admission policy {_NAME} to be in force",
        deadline_s=_DEADLINE_S,
    )


def shown_by(node: Json) -> int:
    """How many GPUs a node object offers."""
    return int(node["status"].get("allocatable", {}).get(RESOURCE, 0))


def _probe() -> Json:
    """A node that is never stored, to see what becomes of it."""
    return {
        "metadata": {"name": "gpu-policy-probe", "labels": {GPUS_LABEL: "1"}},
        "status": {"capacity": {"cpu": "1"}, "allocatable": {"cpu": "1"}},
    }


def _policy() -> Json:
    return {
        "metadata": {"name": _NAME},
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE", "UPDATE"],
                        "resources": ["nodes", "nodes/status"],
                    }
                ]
            },
            "matchConditions": [
                {
                    "name": "labelled",
                    "expression": f"'{GPUS_LABEL}' in object.metadata.?labels.orValue({{}})",
                },
                {"name": "has-status", "expression": "has(object.status.capacity)"},
            ],
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            "mutations": [
                {
                    "patchType": "JSONPatch",
                    "jsonPatch": {"expression": f"[{_patch('capacity')}, {_patch('allocatable')}]"},
                }
            ],
        },
    }


def _patch(field: str) -> str:
    key = RESOURCE.replace("/", "~1")
    value = f"object.metadata.labels['{GPUS_LABEL}']"
    return f'JSONPatch{{op: "add", path: "/status/{field}/{key}", value: {value}}}'
