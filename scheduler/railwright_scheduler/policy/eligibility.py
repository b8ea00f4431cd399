"""Which nodes a job may use at all: its node selector, and their taints against its tolerations.

The semantics are those of Kubernetes. Selectors and tolerations can have any number of keys, and
the cost of a job must not be their number times that of nodes. So a key that no node has costs one
look-up, another key is resolved once, and a toleration is looked up among the distinct taints. The
results for a selector or a list of tolerations are cached for a decision.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from railwright_scheduler.cluster import Ints, Mask
from railwright_scheduler.model.snapshot import Node, Role, Taint, Toleration

NONE = np.zeros(0, dtype=np.int64)

_KEEPS_AWAY = ("NoSchedule", "NoExecute")

# Set and taken back by controllers as conditions come and go (not-ready, unschedulable, memory
# pressure, our own quarantine): they do not decide whether a job could ever use the node.
_PASSING = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "railwright.dev/")


class Eligibility:
    """An index of the nodes by label (built at the first use of a key) and by taint."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._by_label: dict[str, Mapping[str, Ints]] = {}
        self._taints = _TaintIndex(nodes)
        self._matched: dict[tuple[tuple[str, str], ...], Mask] = {}
        self._tolerated: dict[tuple[Toleration, ...], _Tolerated] = {}

    def matched(self, selector: Mapping[str, str]) -> Mask:
        """The nodes that carry every label of the selector. The caller must not write to it."""
        labels = tuple(sorted(selector.items()))
        if labels not in self._matched:
            self._matched[labels] = self._carrying(labels)
        return self._matched[labels]

    def tolerated(self, tolerations: Sequence[Toleration]) -> Mask:
        """The nodes without a taint that the tolerations do not cover."""
        return self._judged(tolerations).now

    def tolerated_ever(self, tolerations: Sequence[Toleration]) -> Mask:
        """The same, forgiving taints that pass by themselves."""
        return self._judged(tolerations).ever

    def lasting(self, tolerations: Sequence[Toleration], among: Mask) -> tuple[Taint, ...]:
        """The lasting taints not tolerated that some node of ``among`` carries, sorted."""
        found = self._taints.lasting(tolerations, among)
        return tuple(sorted(found, key=lambda taint: (taint.key, taint.value, taint.effect)))

    def _judged(self, tolerations: Sequence[Toleration]) -> _Tolerated:
        key = tuple(tolerations)
        if key not in self._tolerated:
            self._tolerated[key] = self._taints.tolerated(key)
        return self._tolerated[key]

    def _carrying(self, labels: Sequence[tuple[str, str]]) -> Mask:
        mask = np.ones(len(self._nodes), dtype=np.bool_)
        for key, value in labels:
            carries = np.zeros(len(self._nodes), dtype=np.bool_)
            carries[self._columns(key).get(value, NONE)] = True
            mask &= carries
            if not mask.any():
                break
        return mask

    @functools.cached_property
    def _keys(self) -> frozenset[str]:
        """Of the labels that nodes carry."""
        return frozenset().union(*(node.labels for node in self._nodes))

    def _columns(self, key: str) -> Mapping[str, Ints]:
        """By the label's value."""
        if key not in self._keys:
            return {}
        if key not in self._by_label:
            columns: dict[str, list[int]] = {}
            for column, node in enumerate(self._nodes):
                if key in node.labels:
                    columns.setdefault(node.labels[key], []).append(column)
            self._by_label[key] = {
                value: np.array(found, dtype=np.int64) for value, found in columns.items()
            }
        return self._by_label[key]


@dataclass(frozen=True, slots=True)
class _Tolerated:
    """The nodes without a taint that is not tolerated ``now``, and without one that lasts."""

    now: Mask
    ever: Mask


class _TaintIndex:
    """The distinct taints of the nodes that keep pods away, numbered, by what tolerations name."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        numbers: dict[Taint, int] = {}
        carried = [
            (numbers.setdefault(taint, len(numbers)), column)
            for column, node in enumerate(nodes)
            for taint in node.taints
            if taint.effect in _KEEPS_AWAY
        ]
        self._taints = tuple(numbers)
        self._taint, self._node = np.array(carried, dtype=np.int64).reshape(-1, 2).T
        self._nodes = len(nodes)
        self._passes = np.array([_passes(taint) for taint in numbers], dtype=np.bool_)
        self._by_name: dict[tuple[str, ...], list[int]] = {}
        for taint, number in numbers.items():
            for name in _names(taint):
                self._by_name.setdefault(name, []).append(number)

    def tolerated(self, tolerations: Sequence[Toleration]) -> _Tolerated:
        """The nodes that these tolerations leave."""
        kept = ~self._covered(tolerations)
        return _Tolerated(self._without(kept), self._without(kept & ~self._passes))

    def lasting(self, tolerations: Sequence[Toleration], among: Mask) -> list[Taint]:
        """The lasting taints not tolerated of these nodes."""
        keeps = ~self._covered(tolerations) & ~self._passes
        found = np.unique(self._taint[keeps[self._taint] & among[self._node]])
        return [self._taints[number] for number in found.tolist()]

    def _without(self, taints: Mask) -> Mask:
        found: Mask = np.bincount(self._node[taints[self._taint]], minlength=self._nodes) == 0
        return found

    def _covered(self, tolerations: Sequence[Toleration]) -> Mask:
        """The tolerated taints, by ``tolerates``."""
        covered = np.zeros(len(self._taints), dtype=np.bool_)
        for toleration in tolerations:
            name = _name(toleration)
            if name is not None:
                covered[self._by_name.get(name, [])] = True
        return covered


def _names(taint: Taint) -> list[tuple[str, ...]]:
    """Of all tolerations that cover it."""
    names = ((), (taint.key,), ("", taint.value), (taint.key, taint.value))
    return [(effect, *name) for name in names for effect in ("", taint.effect)]


def _name(toleration: Toleration) -> tuple[str, ...] | None:
    """What the taints that it covers have in common; None if it covers none."""
    if toleration.operator in ("", "Equal"):
        return toleration.effect, toleration.key, toleration.value
    if toleration.operator == "Exists":
        return (toleration.effect, toleration.key) if toleration.key else (toleration.effect,)
    return None


class Demands:
    """A role's selector and tolerations, prepared for thousands of nodes: tolerations are looked up
    by the fields of a taint, as a role may have thousands."""

    def __init__(self, role: Role) -> None:
        self._selector = sorted(role.selector.items())
        self._tolerated = {_name(toleration) for toleration in role.tolerations}

    def unmet_by(self, node: Node) -> str:
        """What of the node's labels or taints keeps the role's pods away; empty if nothing does."""
        for key, value in self._selector:
            if node.labels.get(key) != value:
                return f"is not labelled {key}={value}"
        for taint in node.taints:
            if taint.effect in _KEEPS_AWAY and self._tolerated.isdisjoint(_names(taint)):
                return f"is tainted {taint.key}={taint.value}:{taint.effect}"
        return ""


def _passes(taint: Taint) -> bool:
    return taint.key.startswith(_PASSING)
