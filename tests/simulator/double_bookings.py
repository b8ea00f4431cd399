"""I1, of nodes on which pods of several attempts hold more devices than there are.

Nothing on the API server's side prevents such a node: somebody binds a pod with the labels of a
job there. The scheduler must place nothing more on it, for as long as that lasts. Attempts in the
ledger do not count: they take nodes, or leave them. Written apart from
``railwright_scheduler.live_invariants``, over what is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from history.invariants import ViolationError
from railwright_api import names
from railwright_scheduler.attempt.ledger import AttemptKey, Entry, EntryState
from simulator.machines import GPU, gpus_of

Json = Mapping[str, Any]
ENDED = ("Succeeded", "Failed")


class DoubleBookings:
    """Since which version which nodes are double-booked. ``version`` is the newest one."""

    def __init__(self, version: Callable[[], int]) -> None:
        self._version = version
        self._capacity: dict[str, int] = {}
        self._node_of: dict[str, str] = {}
        self._held: dict[str, dict[str, tuple[AttemptKey, int]]] = {}
        self._since: dict[str, int] = {}
        self._in_flight: frozenset[AttemptKey] = frozenset()

    def put_node(self, name: str, node: Json | None) -> None:
        """The node as it is now; None when it is gone. Devices that fail stay in its capacity."""
        self._capacity.pop(name, None)
        if node is not None:
            self._capacity[name] = int(node["status"]["capacity"][GPU])
        self._update(name)

    def put_pod(self, key: str, pod: Json | None) -> None:
        """The pod under this key as it is now; None when it is gone."""
        before = self._node_of.pop(key, "")
        self._held.get(before, {}).pop(key, None)
        node = "" if pod is None else pod["spec"].get("nodeName", "")
        if pod is not None and node and pod["metadata"].get("ownerReferences"):
            labels = pod["metadata"]["labels"]
            attempt = labels[names.LABEL_JOB_UID], int(labels[names.LABEL_ATTEMPT])
            if pod["status"].get("phase") not in ENDED:
                self._node_of[key] = node
                self._held.setdefault(node, {})[key] = attempt, gpus_of(pod)
        for node in {before: None, self._node_of.get(key, ""): None}:
            self._update(node)

    def put_ledger(self, entries: Collection[Entry]) -> None:
        """The ledger has these entries now."""
        before, self._in_flight = self._in_flight, frozenset(entry.key for entry in entries)
        changed = before ^ self._in_flight
        for node, held in self._held.items():
            if any(attempt in changed for attempt, _ in held.values()):
                self._update(node)

    def check_ledger(
        self, before: Collection[AttemptKey], after: Collection[Entry], *, known_version: int
    ) -> None:
        """No gang is committed to a node that was double-booked all the time since a version that
        the writer knew."""
        for entry in after:
            if entry.key in before or entry.state is not EntryState.COMMITTING:
                continue
            for node in entry.nodes:
                self.check_binding(entry.key, node, known_version=known_version)

    def check_binding(self, key: AttemptKey, node: str, *, known_version: int) -> None:
        """No pod of an attempt is bound to such a node either."""
        if self._since.get(node, known_version + 1) <= known_version:
            raise ViolationError(f"I1: {key} gets {node}, which is double-booked")

    def _update(self, node: str) -> None:
        whole = self._held.get(node, {}).values()
        held = [each for each in whole if each[0] not in self._in_flight]
        attempts = {attempt for attempt, gpus in held if gpus}
        total = sum(gpus for _, gpus in held)
        if len(attempts) > 1 and total > self._capacity.get(node, total):
            self._since.setdefault(node, self._version())
        else:
            self._since.pop(node, None)
