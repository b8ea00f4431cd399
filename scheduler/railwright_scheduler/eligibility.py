"""Which nodes a job may use at all: its node selector, and their taints against its tolerations.

The meaning is Kubernetes'. A cluster has few label keys that jobs select by, and few distinct
taints, so each becomes a mask once and a job costs a few mask operations, not a loop over nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from railwright_scheduler.cluster import Mask
from railwright_scheduler.snapshot import Job, Node, Taint, Toleration

_KEEPS_AWAY = ("NoSchedule", "NoExecute")

# Set and taken back by controllers as conditions come and go (not-ready, unschedulable, memory
# pressure, our own quarantine): they say nothing about whether a job could ever use the node.
_PASSING = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "railwright.dev/")


class Eligibility:
    """An index of the nodes by label (made when a key is first asked for) and by taint."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._by_label: dict[str, dict[str, list[int]]] = {}
        self._by_taint = _taint_masks(nodes)

    def matched(self, selector: Mapping[str, str]) -> Mask:
        """The nodes that carry every label of the selector."""
        mask = np.ones(len(self._nodes), dtype=np.bool_)
        for key, value in selector.items():
            carries = np.zeros(len(self._nodes), dtype=np.bool_)
            carries[self._columns(key).get(value, [])] = True
            mask &= carries
        return mask

    def tolerated(self, tolerations: Sequence[Toleration]) -> Mask:
        """The nodes without a taint that the tolerations do not cover."""
        return self._without(self._untolerated(tolerations))

    def tolerated_ever(self, tolerations: Sequence[Toleration]) -> Mask:
        """The same, forgiving taints that pass by themselves."""
        return self._without(
            [taint for taint in self._untolerated(tolerations) if not _passes(taint)]
        )

    def lasting(self, tolerations: Sequence[Toleration], among: Mask) -> tuple[Taint, ...]:
        """The lasting taints not tolerated that some node of ``among`` carries, sorted."""
        found = [
            taint
            for taint in self._untolerated(tolerations)
            if not _passes(taint) and (self._by_taint[taint] & among).any()
        ]
        return tuple(sorted(found, key=lambda taint: (taint.key, taint.value, taint.effect)))

    def _untolerated(self, tolerations: Sequence[Toleration]) -> list[Taint]:
        return [
            taint
            for taint in self._by_taint
            if not any(tolerates(toleration, taint) for toleration in tolerations)
        ]

    def _without(self, taints: Sequence[Taint]) -> Mask:
        mask = np.ones(len(self._nodes), dtype=np.bool_)
        for taint in taints:
            mask &= ~self._by_taint[taint]
        return mask

    def _columns(self, key: str) -> dict[str, list[int]]:
        columns = self._by_label.get(key)
        if columns is None:
            columns = {}
            for column, node in enumerate(self._nodes):
                if key in node.labels:
                    columns.setdefault(node.labels[key], []).append(column)
            self._by_label[key] = columns
        return columns


def kept_away(node: Node, job: Job) -> str:
    """What of the node's labels or taints keeps this job away; empty if nothing does."""
    for key, value in sorted(job.selector.items()):
        if node.labels.get(key) != value:
            return f"is not labelled {key}={value}"
    for taint in node.taints:
        if taint.effect in _KEEPS_AWAY and not any(tolerates(t, taint) for t in job.tolerations):
            return f"is tainted {taint.key}={taint.value}:{taint.effect}"
    return ""


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether this toleration covers this taint."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    return toleration.operator == "Exists"


def _taint_masks(nodes: Sequence[Node]) -> dict[Taint, Mask]:
    masks: dict[Taint, Mask] = {}
    for column, node in enumerate(nodes):
        for taint in node.taints:
            if taint.effect in _KEEPS_AWAY:
                if taint not in masks:
                    masks[taint] = np.zeros(len(nodes), dtype=np.bool_)
                masks[taint][column] = True
    return masks


def _passes(taint: Taint) -> bool:
    return taint.key.startswith(_PASSING)
