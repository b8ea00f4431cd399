"""The machines, and all that acts on the cluster without being told by a leader.

Kubelets, the node controller and the garbage collector of Kubernetes, one small step at a time:
each may come at any moment, or late. Who runs what is known here, who says so is not: a leader
hears a launcher only while its node is up.
"""

from __future__ import annotations

from dataclasses import replace

from railwright_scheduler.attempt.assessment import PodState
from railwright_scheduler.invariants import AttemptKey, PodFact
from railwright_scheduler.simulator.api import Api, NodeObject


class Machines:
    """Which nodes are up, and how far each attempt has come."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.down_since_s: dict[str, int] = {}
        self.passed: dict[AttemptKey, bool] = {}

    def hears(self, pod: PodFact) -> bool:
        """Whether the launcher in this pod reaches the operator now."""
        stored = self._api.pods.objects.get(pod.name)
        return (
            stored is not None
            and stored.uid == pod.uid
            and stored.phase is PodState.RUNNING
            and stored.node not in self.down_since_s
        )

    def kubelet(self, pod: PodFact, *, may_end: bool) -> None:
        """One thing that the pod's node does for it."""
        if not pod.node or pod.node in self.down_since_s or pod.node not in self._api.nodes.objects:
            return
        if pod.deleting:
            self._api.pods.remove(pod.name)
        elif pod.phase is PodState.PENDING:
            self._api.pods.put(pod.name, replace(pod, phase=PodState.RUNNING))
            self._note_barrier(pod)
        elif pod.phase is PodState.RUNNING and pod.key in self.passed and may_end:
            self._api.pods.put(pod.name, replace(pod, phase=PodState.SUCCEEDED, exit_code=0))
        else:
            return
        self._api.writes += 1

    def crash(self, pod: PodFact, *, exit_code: int | None) -> None:
        """The pod's container ends badly; without an exit code, its node lost it."""
        if pod.phase is PodState.RUNNING and pod.node not in self.down_since_s:
            self._api.pods.put(pod.name, replace(pod, phase=PodState.FAILED, exit_code=exit_code))
            self._api.writes += 1

    def fail(self, node: str, *, now_s: int) -> None:
        """The node falls silent."""
        self.down_since_s.setdefault(node, now_s)

    def restore(self, node: str, *, rebooted: bool) -> None:
        """The node is back: it was only cut off, or it lost what ran on it."""
        if self.down_since_s.pop(node, None) is not None and rebooted:
            for pod in list(self._api.pods.objects.values()):
                if pod.node == node:
                    self.crash(pod, exit_code=None)

    def watch_node(self, node: NodeObject) -> None:
        """The node controller takes note of a node that went or came."""
        ready = node.name not in self.down_since_s
        if node.ready is not ready:
            self._api.nodes.put(node.name, replace(node, ready=ready))

    def collect(self, pod: PodFact) -> None:
        """The garbage collector looks at one pod: its owner or its node may be gone."""
        if pod.node and pod.node not in self._api.nodes.objects:
            self._api.pods.remove(pod.name)
            self._api.writes += 1
        elif pod.job_uid not in self._api.jobs.objects:
            self._api.remove_pod(pod)

    def _note_barrier(self, pod: PodFact) -> None:
        peers = [other for other in self._api.pods.objects.values() if other.key == pod.key]
        running = {peer.node_rank for peer in peers if peer.phase is PodState.RUNNING}
        job = self._api.jobs.objects.get(pod.job_uid)
        if job is not None and len(running) == job.num_nodes:
            self.passed[pod.key] = True
