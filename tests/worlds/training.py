"""TrainingJobs on a live cluster, in the words of a test: apply, wait until, read what it says."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from railwright_testbed import ControlPlane, waiting

Json = dict[str, Any]

DEADLINE_S = 240.0
"""Longer than four processes on two cores take to start torch, twice, beside other tests."""

NO_IMAGE = "example.com/none"
"""An image that nobody can pull."""


@dataclass(frozen=True, slots=True)
class Training:
    """A job to apply; valid as it is, changed by keyword."""

    name: str
    command: Sequence[str]
    image: str = NO_IMAGE
    nodes: int = 2
    gpus: int = 1
    processes: int = 1
    volumes: Mapping[str, str] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)

    def manifest(self, namespace: str) -> Json:
        """The TrainingJob; ``volumes`` are host folders by their path in the pod."""
        container = {
            "name": "train",
            "image": self.image,
            "command": list(self.command),
            "volumeMounts": [
                {"name": f"v{i}", "mountPath": path} for i, path in enumerate(self.volumes)
            ],
        }
        volumes = [
            {"name": f"v{i}", "hostPath": {"path": folder}}
            for i, folder in enumerate(self.volumes.values())
        ]
        spec = {
            "numNodes": self.nodes,
            "numProcPerNode": self.processes,
            "resourcesPerNode": {"nvidia.com/gpu": self.gpus},
            "template": {"spec": {"containers": [container], "volumes": volumes}},
        }
        return {
            "apiVersion": "railwright.dev/v1alpha1",
            "kind": "TrainingJob",
            "metadata": {"name": self.name, "namespace": namespace},
            "spec": spec | dict(self.spec),
        }


class LiveJob:
    """One applied job."""

    def __init__(self, plane: ControlPlane, namespace: str, name: str) -> None:
        self._plane = plane
        self.namespace = namespace
        self.name = name

    def status(self) -> Json:
        """Its status; empty while it has none, or is gone."""
        found = self._kubectl("get", "tj", self.name, "--ignore-not-found", "-o", "json")
        status: Json = json.loads(found).get("status", {}) if found else {}
        return status

    def until(
        self, holds: Callable[[Json], bool], what: str, *, deadline_s: float = DEADLINE_S
    ) -> Json:
        """Its status once it holds; fails with the whole story when it never does."""

        def answer() -> Json | None:
            status = self.status()
            return status if holds(status) else None

        return waiting.until(answer, what, deadline_s=deadline_s, evidence=self.story)

    def until_phase(self, *phases: str, deadline_s: float = DEADLINE_S) -> Json:
        """Its status once it is in one of these phases."""
        return self.until(
            lambda status: status.get("phase") in phases, f"{phases}", deadline_s=deadline_s
        )

    def patch(self, spec: Mapping[str, Any]) -> None:
        """Change its spec."""
        body = json.dumps({"spec": dict(spec)})
        self._kubectl("patch", "tj", self.name, "--type=merge", "-p", body)

    def delete(self) -> None:
        """Delete it and return at once."""
        self._kubectl("delete", "tj", self.name, "--wait=false")

    def pods(self) -> list[Json]:
        """Its pods, of all attempts."""
        chosen = f"railwright.dev/job-name={self.name}"
        found = self._kubectl("get", "pods", "-l", chosen, "-o", "json")
        pods: list[Json] = json.loads(found)["items"]
        return pods

    def placement(self, attempt: int) -> Json:
        """The spec of an attempt's Placement."""
        found: Json = json.loads(
            self._kubectl("get", "placement", f"{self.name}-{attempt}", "-o", "json")
        )
        spec: Json = found["spec"]
        return spec

    def events(self) -> list[str]:
        """The reasons of its events, the oldest first."""
        chosen = f"regarding.name={self.name}"
        found = self._kubectl(
            "get", "events.v1.events.k8s.io", "--field-selector", chosen, "-o", "json"
        )
        items = sorted(json.loads(found)["items"], key=lambda event: str(event["eventTime"]))
        return [event["reason"] for event in items]

    def logs(self, attempt: int, node_rank: int) -> str:
        """What a pod wrote."""
        return self._kubectl("logs", f"{self.name}-{attempt}-{node_rank}")

    def story(self) -> str:
        """All that a person would look at."""
        parts = [self._kubectl("describe", "tj", self.name)]
        parts.append(self._kubectl("get", "pods", "-o", "wide"))
        return "\n".join(parts)

    def _kubectl(self, *arguments: str) -> str:
        return self._plane.kubectl("-n", self.namespace, *arguments)


def apply(plane: ControlPlane, namespace: str, training: Training) -> LiveJob:
    """Apply the job as a user does."""
    plane.kubectl("apply", "-f", "-", stdin=json.dumps(training.manifest(namespace)))
    return LiveJob(plane, namespace, training.name)


def script(source: str) -> list[str]:
    """A command that runs this Python."""
    return ["python3", "-c", source]
