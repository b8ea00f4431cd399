"""The machines, and the components that act on the cluster without a leader.

Kubelets, the node controller and the garbage collector of Kubernetes, one small step at a time:
each may come at any moment, or late. The real state of pods is kept here; a leader receives
messages of a launcher only while its node is up.
"""

from __future__ import annotations

from dataclasses import replace

from railwright_scheduler.attempt.ledger import AttemptKey
from railwright_scheduler.invariants import PodFact
from railwright_scheduler.model.evidence import PodState
from railwright_scheduler.simulator.api import Api
from railwright_scheduler.simulator.objects import FOREIGN, NodeObject


class Machines:
    """Which nodes are up, and how far each attempt has come."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.down_since_s = api.down
        self.passed: dict[AttemptKey, bool] = {}
        self.cut_since_s: int | None = None
        self._falls = 0

    @property
    def changes(self) -> int:
        """A number that changes whenever the reachability of launchers may have changed."""
        return self._api.writes + self._falls

    def is_reached(self, node: str) -> bool:
        """Whether the control plane and this node reach each other now."""
        return self.cut_since_s is None and node not in self.down_since_s

    def renews(self, node: str) -> bool:
        """Whether its kubelet renews its lease now."""
        return node in self._api.nodes.objects and self.is_reached(node)

    def unreached_s(self, node: str, *, now_s: int) -> int:
        """For how long they have not."""
        since_s = (self.cut_since_s, self.down_since_s.get(node))
        return max((now_s - at_s for at_s in since_s if at_s is not None), default=0)

    def reaches_operator(self, pod: PodFact) -> bool:
        """Whether the launcher in this pod reaches the operator now."""
        stored = self._api.pods.objects.get(pod.uid)
        return (
            stored is not None and stored.phase is PodState.RUNNING and self.is_reached(stored.node)
        )

    def cut(self, *, now_s: int) -> None:
        """The control plane reaches no node any more; what runs there goes on."""
        if self.cut_since_s is None:
            self.cut_since_s = now_s
            self._falls += 1

    def heal(self) -> None:
        """The control plane reaches the nodes again."""
        self.cut_since_s = None
        self._falls += 1

    def kubelet(self, pod: PodFact, *, may_end: bool) -> None:
        """One step of the pod's node for it; a node without capacity rejects it."""
        if not pod.node or pod.node not in self._api.nodes.objects or not self.is_reached(pod.node):
            return
        if pod.deleting:
            self._api.drop_pod(pod)
        elif pod.phase is PodState.PENDING and not self._has_room(pod):
            self._end(pod, PodState.FAILED, exit_code=None)
        elif pod.phase is PodState.PENDING:
            self._api.pods.put(pod.uid, replace(pod, phase=PodState.RUNNING))
            self._note_barrier(pod)
        elif pod.phase is PodState.RUNNING and may_end and self._may_end(pod):
            if self._api.pre_runs.record(self._api.jobs, pod.key):
                return
            self._end(pod, PodState.SUCCEEDED, exit_code=0)

    def training(self) -> list[AttemptKey]:
        """The attempts that are past the barrier with all of their pods running."""
        running = [p for p in self._api.pods.objects.values() if p.phase is PodState.RUNNING]
        return [
            key
            for key in self.passed
            if sum(pod.key == key for pod in running) == self._api.sizes.get(key)
        ]

    def crash(self, pod: PodFact, *, exit_code: int | None) -> None:
        """The pod's container ends badly; without an exit code, its node lost it."""
        if pod.phase is PodState.RUNNING and self.is_reached(pod.node):
            self._end(pod, PodState.FAILED, exit_code=exit_code)

    def fail(self, node: str, *, now_s: int) -> None:
        """The node falls silent."""
        self.down_since_s.setdefault(node, now_s)
        self._falls += 1

    def restore(self, node: str, *, rebooted: bool) -> None:
        """The node is back: it was only cut off, or it lost what ran on it."""
        self._falls += 1
        if self.down_since_s.pop(node, None) is None:
            return
        self._api.note_death(node)
        if rebooted:
            for pod in list(self._api.pods.objects.values()):
                if pod.node == node:
                    self.crash(pod, exit_code=None)

    def watch_node(self, node: NodeObject) -> None:
        """The node controller takes note of a node that went or came."""
        ready = self.is_reached(node.name)
        if node.ready is not ready:
            self._api.nodes.put(node.name, replace(node, ready=ready))

    def collect(self, pod: PodFact) -> None:
        """The garbage collector checks one pod: its owner or its node may be deleted."""
        if pod.node and pod.node not in self._api.nodes.objects:
            self._api.drop_pod(pod)
        elif pod.job_uid == FOREIGN:
            if pod.terminal:
                self._api.drop_pod(pod)
        elif pod.job_uid not in self._api.jobs.objects:
            self._api.remove_pod(pod)

    def collect_placement(self, name: str) -> None:
        """The garbage collector checks one Placement."""
        placement = self._api.placements.objects[name]
        if placement.job_uid not in self._api.jobs.objects:
            self._api.placements.remove(name)

    def _end(self, pod: PodFact, phase: PodState, *, exit_code: int | None) -> None:
        self._api.pods.put(pod.uid, replace(pod, phase=phase, exit_code=exit_code))

    def _may_end(self, pod: PodFact) -> bool:
        if pod.job_uid == FOREIGN:
            return True
        stops = self._api.network.lasts or self._api.hangs.stops(pod.key)
        return pod.key in self.passed and not stops

    def _has_room(self, pod: PodFact) -> bool:
        """Whether the node can take it beside what runs there."""
        has = self._api.nodes.objects[pod.node].allocatable
        pods = self._api.pods.objects.values()
        running = [p for p in pods if p.node == pod.node and p.phase is PodState.RUNNING]
        return all(
            amount + sum(other.amounts.get(name, 0) for other in running) <= has.get(name, 0)
            for name, amount in pod.amounts.items()
        )

    def _note_barrier(self, pod: PodFact) -> None:
        if pod.job_uid == FOREIGN:
            return
        peers = [other for other in self._api.pods.objects.values() if other.key == pod.key]
        running = {peer.node_rank for peer in peers if peer.phase is PodState.RUNNING}
        if len(running) == self._api.sizes.get(pod.key):
            self.passed[pod.key] = True
