"""The controllers of Kubernetes: of the life of nodes, of taints, and of garbage.

They act some time after they could.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any

from railwright_kube import paths
from simulator.api_server import ApiServer
from simulator.machines import NODES, Machines, disrupted, path_of, ready
from simulator.statuses import StatusError
from simulator.virtual_loop import VirtualLoop

Json = Mapping[str, Any]

GRACE_S = 40.0
"""How long a kubelet may be silent until its node is not Ready."""

TOLERATED_S = 300.0
"""How long pods tolerate that their node is not Ready, by default."""

DISRUPTED, DISRUPTED_NODES = 0.55, 3
"""From this share of nodes that are not Ready, and so many, no pod is evicted: the control plane
takes itself for cut off."""

CONTROLLER_S = 5.0
COLLECTED = 0.4
"""How often the garbage collector gets to its work when the controllers look."""


class ControlPlane:
    """All controllers. ``collected`` is how often garbage is collected, ``counts`` how often what
    happened."""

    def __init__(
        self, loop: VirtualLoop, server: ApiServer, rng: Random, machines: Machines
    ) -> None:
        self._loop = loop
        self._server = server
        self._rng = rng
        self._machines = machines
        self._unready_s: dict[str, float] = {}
        self.collected = COLLECTED
        self.counts: Counter[str] = Counter()
        loop.call_later(CONTROLLER_S, self._control)

    def _control(self) -> None:
        """All act, again and again."""
        for node in self._server.objects(NODES):
            is_ready = self._machines.silent_s(node["metadata"]["name"]) < GRACE_S
            self._set_ready(node, is_ready=is_ready)
        names = {*self._machines.names}
        for pod in self._server.objects(paths.PODS):
            if pod["spec"].get("nodeName") and pod["spec"]["nodeName"] not in names:
                self._request("DELETE", path_of(pod), {"gracePeriodSeconds": 0})
        self._evict()
        if self._rng.random() < self.collected:
            self._server.collect_garbage()
        self._loop.call_later(CONTROLLER_S, self._control)

    def _set_ready(self, node: Json, *, is_ready: bool) -> None:
        name, status = node["metadata"]["name"], "True" if is_ready else "Unknown"
        if is_ready:
            self._unready_s.pop(name, None)
        else:
            self._unready_s.setdefault(name, self._loop.time())
        if node["status"]["conditions"][0]["status"] != status:
            path = f"{NODES}/{name}/status"
            self._request("PATCH", path, {"status": {"conditions": [ready(status)]}})

    def _evict(self) -> None:
        """Pods of nodes that are not Ready for long are deleted. They go on to be there until their
        kubelet is back."""
        names = self._machines.names
        unready = [name for name in names if name in self._unready_s]
        is_cut = len(unready) >= DISRUPTED_NODES and len(unready) > DISRUPTED * len(names)
        if is_cut or len(unready) == len(names):
            return
        until_s = self._loop.time() - TOLERATED_S
        for pod in self._server.objects(paths.PODS):
            since_s = self._unready_s.get(pod["spec"].get("nodeName", ""))
            is_going = "deletionTimestamp" in pod["metadata"]
            is_over = pod["status"].get("phase") in ("Succeeded", "Failed")
            if since_s is not None and since_s < until_s and not (is_going or is_over):
                self.counts["evicted with its node"] += 1
                self.delete(pod, "DeletionByTaintManager")

    def delete(self, pod: Json, reason: str) -> None:
        """Somebody in the cluster deletes a pod for this reason, and says so in its status."""
        status = {"conditions": disrupted(pod, reason)}
        self._request("PATCH", f"{path_of(pod)}/status", {"status": status})
        self._request("DELETE", path_of(pod))

    def _request(self, method: str, path: str, body: Any = None) -> None:
        try:
            self._server.request(method, path, body)
        except StatusError:
            return
