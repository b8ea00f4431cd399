"""The clusters that the demo watches a job on."""

from __future__ import annotations

import json
from typing import Protocol

from railwright_testbed import ControlPlane
from railwright_testbed.api_client import Json
from railwright_testbed.node import RACK_LABEL

COLUMNS = "custom-columns=TIME:.eventTime,TYPE:.type,REASON:.reason,MESSAGE:.message"


class WatchedCluster(Protocol):
    """An API server. The job runs in ``namespace``; ``nodes_path`` lists the nodes to show."""

    namespace: str
    nodes_path: str

    def get(self, path: str) -> Json:
        """An object, or a list of objects."""

    def apply(self, job: Json) -> None:
        """Create a TrainingJob."""

    def timeline(self, job: str) -> str:
        """The job and its events in order, as text."""


class TestbedCluster:
    """A cluster of the testbed, whose kubectl is at hand."""

    # pytest would take it for a test otherwise.
    __test__ = False

    def __init__(self, plane: ControlPlane) -> None:
        self.namespace = "default"
        self.nodes_path = f"/api/v1/nodes?labelSelector={RACK_LABEL}"
        self._plane = plane
        self._client = plane.client()

    def get(self, path: str) -> Json:
        return self._client.get(path)

    def apply(self, job: Json) -> None:
        self._plane.kubectl("apply", "-f", "-", stdin=json.dumps(job))

    def timeline(self, job: str) -> str:
        events = self._plane.kubectl(
            "get",
            "events",
            f"--field-selector=involvedObject.kind=TrainingJob,involvedObject.name={job}",
            "--sort-by=.eventTime",
            f"--output={COLUMNS}",
        )
        line = self._plane.kubectl("get", "tj", job)
        return f"$ kubectl get tj {job}\n{line}\nits events:\n{events}"

    def close(self) -> None:
        self._client.close()
