"""I29 and I30: what the cluster does to pods and nodes is not a fault of ranks, and is respected.

Kubernetes ends pods with SIGTERM, and their peers fail with them. The API server shows why before
or soon after, and places a pod on a cordoned node if it is told to.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from history.invariants import ViolationError
from railwright_api import names
from railwright_scheduler.attempt.ledger import AttemptKey, Entry, EntryState

Json = Mapping[str, Any]

REMOVAL_S = 10.0
"""How long the operator waits for the news that a pod was ended whose rank SIGTERM has ended."""


class Disruptions:
    """Since which version pods of which attempts are ended by others than their ranks, and which
    nodes are cordoned. ``version`` is the newest one."""

    def __init__(self, version: Callable[[], int]) -> None:
        self._version = version
        self._ended: dict[AttemptKey, int] = {}
        self._cordoned: dict[str, int] = {}

    def put_node(self, name: str, node: Json | None) -> None:
        """The node as it is now; None when it is gone."""
        if node is not None and node["spec"].get("unschedulable"):
            self._cordoned.setdefault(name, self._version())
        else:
            self._cordoned.pop(name, None)

    def put_pod(self, pod: Json, *, is_gone: bool) -> None:
        """The pod as it is now, or as it was when it went."""
        metadata, conditions = pod["metadata"], pod["status"].get("conditions", ())
        is_evicted = any(each["type"] == "DisruptionTarget" for each in conditions)
        if names.LABEL_JOB_UID not in metadata.get("labels", {}) or not pod["spec"].get("nodeName"):
            return  # One that is not bound yet is made again, and its attempt goes on.
        if is_gone or is_evicted or "deletionTimestamp" in metadata:
            labels = metadata["labels"]
            key = labels[names.LABEL_JOB_UID], int(labels[names.LABEL_ATTEMPT])
            self._ended.setdefault(key, self._version())

    def check_failure(self, key: AttemptKey, *, waited_s: float, known_version: int) -> None:
        """I29: an attempt of which no rank failed by itself does not end as RankFailed once the
        operator can know that somebody ended a pod of it, nor before it has waited for that."""
        is_known = self._ended.get(key, known_version + 1) <= known_version
        if is_known or waited_s < REMOVAL_S:
            raise ViolationError(f"I29: {key} ended as RankFailed, and a pod of it was ended")

    def check_ledger(
        self, before: Collection[AttemptKey], after: Collection[Entry], *, known_version: int
    ) -> None:
        """I30: no gang is committed to a node that was cordoned all the time since a version that
        the writer knew."""
        for entry in after:
            if entry.key in before or entry.state is not EntryState.COMMITTING:
                continue
            for node in entry.nodes:
                if self._cordoned.get(node, known_version + 1) <= known_version:
                    raise ViolationError(f"I30: {entry.key} gets {node}, which is cordoned")
