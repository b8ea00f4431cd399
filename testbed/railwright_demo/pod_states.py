"""Pods on somebody's cluster: why they do not start."""

from __future__ import annotations

from railwright_cli.api_server import CORE, ApiServer
from railwright_demo.errors import DemoError
from railwright_testbed.api_client import Json

CANNOT_START = ("ErrImageNeverPull", "ImagePullBackOff", "InvalidImageName")


def check_images(server: ApiServer, namespace: str) -> None:
    """Raise DemoError if an image of a pod cannot be pulled."""
    for pod in _pods(server, namespace):
        for waiting in _waiting(pod):
            if waiting.get("reason") in CANNOT_START:
                name, message = pod["metadata"]["name"], waiting.get("message", "")
                raise DemoError(f"pod {namespace}/{name}: {waiting['reason']}: {message}")


def describe(server: ApiServer, namespace: str) -> str:
    """A line for each pod: its phase, and what it waits for."""
    lines = []
    for pod in _pods(server, namespace):
        conditions = pod["status"].get("conditions", ())
        reasons = [each["message"] for each in conditions if each.get("message")]
        reasons += [f"{each.get('reason')} {each.get('message', '')}" for each in _waiting(pod)]
        phase = pod["status"].get("phase")
        lines.append(f"pod {namespace}/{pod['metadata']['name']}: {phase}: {'; '.join(reasons)}")
    return "\n".join(lines)


def _pods(server: ApiServer, namespace: str) -> list[Json]:
    return server.items(f"{CORE}/namespaces/{namespace}/pods", Json)


def _waiting(pod: Json) -> list[Json]:
    status = pod["status"]
    containers = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
    states = [each.get("state", {}) for each in containers]
    return [each["waiting"] for each in states if "waiting" in each]
