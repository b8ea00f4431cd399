"""Which level of Pod Security the namespace of Railwright needs: with agents privileged, without
them restricted."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from railwright_testbed import ControlPlane, helm
from railwright_testbed.control_plane import KubectlError

Document = dict[str, Any]
SYSTEM = "railwright-system"
ONLY_THE_HOST_NETWORK = r'PodSecurity "restricted:latest": host namespaces \(hostNetwork=true\)\s*$'
SERVERS = {"railwright-operator", "railwright-controllers"}


def _chart(*options: str) -> str:
    return helm.run(
        *("template", "railwright", str(helm.CHART), "--set=images.registry=example.com"),
        *("--namespace", SYSTEM, *options),
    )


def _manifests(plane: ControlPlane, folder: str) -> str:
    return plane.kubectl("kustomize", str(helm.CHART / folder))


def _pods(text: str) -> dict[str, Document]:
    """A pod of each workload among these objects, by the workload's name."""
    workloads = [
        each
        for each in yaml.safe_load_all(text)
        if each and each["kind"] in ("Deployment", "DaemonSet")
    ]
    return {each["metadata"]["name"]: each["spec"]["template"] for each in workloads}


@pytest.fixture
def restricted(control_plane: ControlPlane, namespace: str) -> str:
    """A namespace as the pages describe it, with the service accounts of the pods."""
    label = "pod-security.kubernetes.io/enforce=restricted"
    control_plane.kubectl("label", "namespace", namespace, label)
    for name in (*SERVERS, "railwright-agent"):
        control_plane.kubectl("-n", namespace, "create", "serviceaccount", name)
    return namespace


def _create(plane: ControlPlane, namespace: str, template: Document) -> str:
    """Create a pod of this template as a dry run. Raises KubectlError."""
    metadata = template["metadata"] | {"name": "pod"}
    pod = {"apiVersion": "v1", "kind": "Pod", **template, "metadata": metadata}
    dry = ("create", "--dry-run=server", "--validate=strict", "-f", "-")
    return plane.kubectl("-n", namespace, *dry, stdin=json.dumps(pod))


def test_pods_without_agents_are_restricted(control_plane: ControlPlane, restricted: str) -> None:
    """Those of the chart, and those of the manifests."""
    for text in (
        _chart("--set=agent.enabled=false"),
        _manifests(control_plane, ""),
    ):
        pods = _pods(text)
        assert pods.keys() == SERVERS
        for template in pods.values():
            assert "server dry run" in _create(control_plane, restricted, template)


def test_agents_need_a_privileged_namespace(control_plane: ControlPlane, restricted: str) -> None:
    agents = [_pods(_manifests(control_plane, "agents")), _pods(_chart())]
    for found in agents:
        with pytest.raises(KubectlError, match=ONLY_THE_HOST_NETWORK):
            _create(control_plane, restricted, found["railwright-agent"])
