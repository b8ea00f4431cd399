"""The nodes and their kubelets.

A kubelet acts some time after it could. A node that is down does nothing, and one that is cut off
goes on with what runs there, while neither reaches the control plane. Containers of a pod that is
deleted or evicted get SIGTERM, and SIGKILL after the pod's grace period.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from random import Random
from typing import Any

from railwright_kube import paths
from simulator.api_server import ApiServer
from simulator.deletion import DEFAULT_GRACE_S
from simulator.processes import EPOCH_S
from simulator.statuses import StatusError
from simulator.stored_objects import Change
from simulator.times import timestamp
from simulator.virtual_loop import VirtualLoop
from simulator.workloads import PRODUCT

Json = Mapping[str, Any]

GPU = "nvidia.com/gpu"
RENEW_S = 10.0
EXIT_TERMINATED, EXIT_KILLED = 143, 137
REPORTED = 0.7
"""How often a kubelet reports how containers of a deleted pod ended, before the pod is gone."""

NODES = paths.NODES
KUBELET_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


class Machines:
    """All nodes. ``on_started`` is called with a pod whose containers run now, and ``on_sigterm``
    with one whose containers get SIGTERM; it returns whether they handle it."""

    def __init__(
        self,
        loop: VirtualLoop,
        server: ApiServer,
        rng: Random,
        terminations: Random,
        *,
        on_started: Callable[[Json], None],
        on_sigterm: Callable[[Json], bool],
    ) -> None:
        self._loop = loop
        self._server = server
        self._rng = rng
        self._terminations = terminations
        self._on_started = on_started
        self._on_sigterm = on_sigterm
        self._down_since_s: dict[str, float] = {}
        self._lost: set[str] = set()
        self._stalled: set[str] = set()
        self._running: dict[str, str] = {}
        self._terminating: set[str] = set()
        self._evicted: set[str] = set()
        self.died_s: dict[str, float] = {}
        self.cut_until_s: dict[str, float] = {}
        self.cut_since_s: float | None = None
        server.on_change.append(self._changed)

    def add(self, name: str, *, gpus: int) -> None:
        """A node joins."""
        amounts = {GPU: str(gpus), "cpu": "64", "memory": "512Gi", "pods": "110"}
        labels = {"kubernetes.io/hostname": name, "nvidia.com/gpu.product": PRODUCT}
        self._server.request(
            "POST",
            NODES,
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": labels},
                "spec": {},
                "status": {
                    "capacity": amounts,
                    "allocatable": amounts,
                    "conditions": [ready("True")],
                },
            },
        )
        self._down_since_s.pop(name, None)
        self._lost.discard(name)
        self._end_lost(name)
        self._renew(name)

    def remove(self, name: str) -> None:
        """A node is deleted; what runs there is lost with it."""
        self.died_s[name] = self._loop.time()
        self._kill_all(name)
        self._request("DELETE", f"{NODES}/{name}")
        self._request("DELETE", f"{KUBELET_LEASES}/{name}")

    def resize(self, name: str, *, gpus: int) -> None:
        """Devices of a node break, or are repaired."""
        self._request(
            "PATCH", f"{NODES}/{name}/status", {"status": {"allocatable": {GPU: str(gpus)}}}
        )

    def cordon(self, name: str, *, unschedulable: bool) -> None:
        """Nothing new is to run on a node, or something may again."""
        self._request("PATCH", f"{NODES}/{name}", {"spec": {"unschedulable": unschedulable}})

    def evict(self, pod: Json) -> bool:
        """The kubelet ends a pod, as its node runs out of memory or disk. It reports that once the
        containers have ended."""
        uid = pod["metadata"]["uid"]
        if not self._acts(pod["spec"]["nodeName"]) or uid not in self._running:
            return False
        self._evicted.add(uid)
        self._terminate(pod)
        return True

    @property
    def names(self) -> list[str]:
        """Of all nodes there are."""
        return [node["metadata"]["name"] for node in self._server.objects(NODES)]

    def is_reached(self, name: str) -> bool:
        """Whether the control plane and this node reach each other now."""
        return self.cut_since_s is None and name not in self._down_since_s

    def is_up(self, name: str) -> bool:
        """Whether what runs there goes on."""
        return name not in self._lost

    def fail(self, name: str, *, is_cut: bool) -> None:
        """The node falls silent; if it is only ``is_cut`` off, what runs there goes on."""
        self._down_since_s.setdefault(name, self._loop.time())
        if not is_cut:
            self._lost.add(name)
            self.died_s[name] = self._loop.time()

    def stall(self, name: str, seconds: float) -> None:
        """The kubelet's watch of pods delivers nothing for a while; its Lease is renewed."""
        self._stalled.add(name)
        self._loop.call_later(seconds, self._go_on, name)

    def _go_on(self, name: str) -> None:
        self._stalled.discard(name)
        self._catch_up(name)

    def restore(self, name: str) -> None:
        """The node is back; what ran there when it died has failed."""
        if self._down_since_s.pop(name, None) is None:
            return
        is_rebooted = name in self._lost
        self._lost.discard(name)
        (self.died_s if is_rebooted else self.cut_until_s)[name] = self._loop.time()
        if is_rebooted:
            self._kill_all(name)
            self._end_lost(name)
        self._catch_up(name)

    def _end_lost(self, name: str) -> None:
        """The kubelet finds that containers of its pods are gone, with an earlier node of the name
        or since a reboot."""
        for pod in self._pods_on(name):
            if pod["status"].get("phase") == "Running" and not self.holds_running(pod):
                self.end(pod, exit_code=None)

    def cut(self) -> None:
        """The control plane reaches no node."""
        if self.cut_since_s is None:
            self.cut_since_s = self._loop.time()

    def heal(self) -> None:
        """The control plane reaches the nodes again, and all kubelets go on."""
        self.cut_since_s = None
        self._stalled.clear()
        for name in self.names:
            self._catch_up(name)

    def silent_s(self, name: str) -> float:
        """How long the kubelet of a node has not reached the control plane."""
        now_s = self._loop.time()
        return now_s - min(self._down_since_s.get(name, now_s), self.cut_since_s or now_s)

    @property
    def down(self) -> list[str]:
        """The nodes that are down or cut off."""
        return [*self._down_since_s]

    def holds_running(self, pod: Json) -> bool:
        """Whether the containers of this very pod run. They outlive the pod on a node that the
        control plane does not reach."""
        return pod["metadata"]["uid"] in self._running and self.is_up(pod["spec"]["nodeName"])

    def end(self, pod: Json, *, exit_code: int | None) -> None:
        """The containers of a pod have ended; without an exit code, their node lost them."""
        uid = pod["metadata"]["uid"]
        self._running.pop(uid, None)
        held = self._held(pod)
        if held is None or held["status"].get("phase") != "Running":
            return
        is_deleted = "deletionTimestamp" in held["metadata"]
        if is_deleted and exit_code is not None and self._terminations.random() >= REPORTED:
            self._remove_soon(held)
            return
        status: dict[str, Any] = {"phase": "Succeeded" if exit_code == 0 else "Failed"}
        if exit_code is not None:
            ended = {"exitCode": exit_code, "reason": "Error" if exit_code else "Completed"}
            status["containerStatuses"] = [_container(held, {"terminated": ended})]
        if uid in self._evicted:
            status |= {"phase": "Failed", "reason": "Evicted"}
            status["conditions"] = disrupted(held, "TerminationByKubelet")
        self._patch_status(held, status)

    def _changed(self, change: Change) -> None:
        """Kubelets act on what changes about their pods."""
        pod = change.object.object
        if change.object.resource.kind != "Pod" or not pod["spec"].get("nodeName"):
            return
        if change.type == "DELETED":
            self._later(0.1, 2.0, self._kill, pod)
        elif "deletionTimestamp" in pod["metadata"]:
            self._later(0.2, 4.0, self._remove, pod)
        elif pod["status"].get("phase") == "Pending":
            self._later(0.1, 4.0, self._start, pod)

    def _kill(self, pod: Json) -> None:
        """The kubelet ends the containers of a pod that is gone."""
        if self._acts(pod["spec"]["nodeName"]) and pod["metadata"]["uid"] in self._running:
            self._terminate(pod)

    def _terminate(self, pod: Json) -> None:
        """The containers get SIGTERM, once, and SIGKILL if they outlive the grace period."""
        uid = pod["metadata"]["uid"]
        if uid in self._terminating:
            return
        self._terminating.add(uid)
        if self._on_sigterm(pod):
            grace_s = pod["metadata"].get("deletionGracePeriodSeconds") or DEFAULT_GRACE_S
            self._loop.call_later(grace_s, self._sigkill, pod)
        else:
            self.end(pod, exit_code=EXIT_TERMINATED)

    def _sigkill(self, pod: Json) -> None:
        if pod["metadata"]["uid"] not in self._running:
            return
        if self._acts(pod["spec"]["nodeName"]):
            self.end(pod, exit_code=EXIT_KILLED)
        else:
            self._loop.call_later(RENEW_S, self._sigkill, pod)

    def _kill_all(self, name: str, *, but: Collection[str] = ()) -> None:
        """No container of this node runs any more, but those of some pods."""
        for uid in [uid for uid, node in self._running.items() if node == name]:
            if uid not in but:
                del self._running[uid]

    def _catch_up(self, name: str) -> None:
        if self._acts(name):
            self._kill_all(name, but=[pod["metadata"]["uid"] for pod in self._pods_on(name)])
        for pod in self._pods_on(name):
            if "deletionTimestamp" in pod["metadata"]:
                self._later(0.2, 4.0, self._remove, pod)
            elif pod["status"].get("phase") == "Pending":
                self._later(0.1, 4.0, self._start, pod)

    def _start(self, pod: Json) -> None:
        held, node = self._held(pod), pod["spec"]["nodeName"]
        if held is None or held["status"].get("phase") != "Pending" or not self._acts(node):
            return
        if "deletionTimestamp" in held["metadata"]:
            return
        if not self._has_room(held):
            self._patch_status(held, {"phase": "Failed", "reason": f"OutOf{GPU}"})
            return
        running = {"running": {"startedAt": timestamp(EPOCH_S + self._loop.time())}}
        address = f"10.0.0.{self._rng.randrange(1, 255)}"
        status: dict[str, Any] = {"phase": "Running", "podIP": address}
        status["containerStatuses"] = [_container(held, running)]
        status["conditions"] = [*held["status"].get("conditions", ()), ready("True")]
        self._running[held["metadata"]["uid"]] = node
        self._patch_status(held, status)
        held = self._held(pod)
        if held is not None:
            self._on_started(held)

    def _remove(self, pod: Json) -> None:
        """The kubelet ends the containers of a pod that is being deleted, then removes it."""
        held = self._held(pod)
        if held is None or not self._acts(pod["spec"]["nodeName"]):
            return
        if held["metadata"]["uid"] in self._running:
            self._terminate(held)
        else:
            self._request("DELETE", path_of(held), {"gracePeriodSeconds": 0})

    def _remove_soon(self, pod: Json) -> None:
        self._loop.call_later(self._terminations.uniform(0.0, 2.0), self._remove, pod)

    def _acts(self, node: str) -> bool:
        """Whether the kubelet does something about pods."""
        return self._renews(node) and node not in self._stalled

    def _renews(self, node: str) -> bool:
        return self.is_reached(node) and node in self.names

    def _has_room(self, pod: Json) -> bool:
        """Whether the node can take it beside what runs there."""
        name = pod["spec"]["nodeName"]
        node = self._server.request("GET", f"{NODES}/{name}")
        running = (p for p in self._pods_on(name) if p["status"].get("phase") == "Running")
        return sum(map(gpus_of, running)) + gpus_of(pod) <= int(node["status"]["allocatable"][GPU])

    def _pods_on(self, name: str) -> list[Json]:
        return [p for p in self._server.objects(paths.PODS) if p["spec"].get("nodeName") == name]

    def _held(self, pod: Json) -> Json | None:
        """This very pod as it is now."""
        try:
            found: Json = self._server.request("GET", path_of(pod))
        except StatusError:
            return None
        return found if found["metadata"]["uid"] == pod["metadata"]["uid"] else None

    def _renew(self, name: str) -> None:
        """The kubelet renews its Lease, again and again."""
        if name not in self.names:
            return
        if self._renews(name):
            body = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": name, "namespace": "kube-node-lease"},
                "spec": {
                    "holderIdentity": name,
                    "leaseDurationSeconds": 40,
                    "renewTime": timestamp(EPOCH_S + self._loop.time()),
                },
            }
            if self._request("PATCH", f"{KUBELET_LEASES}/{name}", {"spec": body["spec"]}) is None:
                self._request("POST", KUBELET_LEASES, body)
        self._loop.call_later(RENEW_S * self._rng.uniform(0.96, 1.04), self._renew, name)

    def _patch_status(self, pod: Json, status: Mapping[str, Any]) -> None:
        self._request("PATCH", f"{path_of(pod)}/status", {"status": status})

    def _request(self, method: str, path: str, body: Any = None) -> Any:
        """The answer; None for what is gone or there already."""
        try:
            return self._server.request(method, path, body)
        except StatusError:
            return None

    def _later(
        self, least_s: float, most_s: float, call: Callable[[Json], None], pod: Json
    ) -> None:
        self._loop.call_later(self._rng.uniform(least_s, most_s), call, pod)


def gpus_of(pod: Json) -> int:
    """The devices that a pod requests."""
    found = (each.get("resources", {}) for each in pod["spec"]["containers"])
    return sum(
        int({**each.get("limits", {}), **each.get("requests", {})}.get(GPU, 0)) for each in found
    )


def _container(pod: Json, state: Json) -> Json:
    name = pod["spec"]["containers"][0]["name"]
    return {"name": name, "state": state, "ready": "running" in state}


def ready(status: str) -> Json:
    """The condition Ready."""
    return {"type": "Ready", "status": status}


def disrupted(pod: Json, reason: str) -> list[Json]:
    """The conditions of a pod that the cluster ends for this reason."""
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason}
    return [*pod["status"].get("conditions", ()), condition]


def path_of(pod: Json) -> str:
    """Of this pod."""
    metadata = pod["metadata"]
    return paths.pod(metadata["namespace"], metadata["name"])
