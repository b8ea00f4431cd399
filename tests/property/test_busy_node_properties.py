"""Busy nodes against a count of all pods, after each change of any of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.examples import examples
from railwright_api import names
from railwright_controllers.watch import pods
from railwright_controllers.watch.pods import BusyNodes, RunningPod
from railwright_kube import projections
from railwright_kube.core_v1 import PodObject


@dataclass(frozen=True)
class Pod:
    """A pod of a test; ``node`` is empty while it is unbound."""

    node: str
    phase: str
    is_ours: bool
    resource: str
    amount: int
    is_in_init: bool

    @property
    def busy_node(self) -> str:
        """The node that this pod keeps busy; empty if there is none."""
        uses_devices = "/" in self.resource and self.amount > 0
        has_ended = self.phase in ("Succeeded", "Failed")
        return self.node if (self.is_ours or uses_devices) and not has_ended else ""

    def record(self, uid: str, version: int) -> RunningPod:
        container: dict[str, Any] = {
            "name": "main",
            "resources": {"requests": {self.resource: str(self.amount)}},
        }
        plain = {"name": "plain"}
        containers = {"initContainers": [container], "containers": [plain]}
        if not self.is_in_init:
            containers = {"containers": [plain, container]}
        labels = {names.LABEL_JOB_UID: "job-uid"} if self.is_ours else {"app": "web"}
        metadata = {"uid": uid, "name": uid, "namespace": "team", "resourceVersion": str(version)}
        raw = {
            "metadata": metadata | {"labels": labels},
            "spec": containers | {"nodeName": self.node},
            "status": {"phase": self.phase},
        }
        return pods.record(projections.converted(raw, PodObject))


PODS = st.builds(
    Pod,
    node=st.sampled_from(["", "n0", "n1", "n2"]),
    phase=st.sampled_from(["Pending", "Running", "Unknown", "Succeeded", "Failed"]),
    is_ours=st.booleans(),
    resource=st.sampled_from(["cpu", "hugepages-2Mi", "nvidia.com/gpu", "example.com/nic"]),
    amount=st.sampled_from([0, 1, 8]),
    is_in_init=st.booleans(),
)
CHANGES = st.lists(st.tuples(st.sampled_from("abcdef"), st.none() | PODS), max_size=30)


@settings(max_examples=examples(200))
@given(CHANGES)
def test_busy_nodes_are_those_of_a_whole_count(changes: list[tuple[str, Pod | None]]) -> None:
    """None deletes a pod."""
    busy = BusyNodes()
    held: dict[str, Pod] = {}
    cached: dict[str, RunningPod] = {}
    for version, (uid, pod) in enumerate(changes, 1):
        old, new = cached.pop(uid, None), None
        held.pop(uid, None)
        if pod is not None:
            held[uid] = pod
            cached[uid] = new = pod.record(uid, version)
        if old != new:
            busy.change(old, new)
        assert busy.names() == {each.busy_node for each in held.values()} - {""}
