"""Which nodes a job may use at all: its node selector and node affinity, and their taints against
its tolerations.

The semantics are those of Kubernetes. Selectors and tolerations can have any number of keys, and
the cost of a job must not be their number times that of nodes. So a key that no node has costs one
look-up, another key is resolved once, and a toleration is looked up among the distinct taints. The
results for a selector, an affinity or a list of tolerations are cached for a decision.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from railwright_scheduler.arrays import Ints, Mask
from railwright_scheduler.model.node_affinity import (
    NodeAffinity,
    NodeRequirement,
    SelectorOperator,
    integer,
)
from railwright_scheduler.model.snapshot import Node, Role, Taint, Toleration

_KEEPS_AWAY = ("NoSchedule", "NoExecute")

# Set and taken back by controllers as conditions come and go (not-ready, unschedulable, memory
# pressure, our own quarantine): they do not decide whether a job could ever use the node.
_PASSING = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "railwright.dev/")


class Eligibility:
    """An index of the nodes by label (built at the first use of a key) and by taint."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._by_label: dict[str, _Column] = {}
        self._nowhere = _Column([None] * len(nodes))
        self._taints = _TaintIndex(nodes)
        self._selected: dict[tuple[tuple[str, str], ...], Mask] = {}
        self._matched: dict[NodeAffinity | None, Mask] = {None: ~self._nowhere.present}
        self._tolerated: dict[tuple[Toleration, ...], _Tolerated] = {}

    def selected(self, selector: Mapping[str, str]) -> Mask:
        """The nodes that carry every label of the selector. The caller must not write to it."""
        labels = tuple(sorted(selector.items()))
        if labels not in self._selected:
            self._selected[labels] = self._carrying(labels)
        return self._selected[labels]

    def matched(self, affinity: NodeAffinity | None) -> Mask:
        """The nodes that match the node affinity, ``NodeAffinity.matches``; all of them if there is
        none. The caller must not write to it."""
        if affinity not in self._matched:
            assert affinity is not None
            self._matched[affinity] = self._matching(affinity)
        return self._matched[affinity]

    def tolerated(self, tolerations: Sequence[Toleration]) -> Mask:
        """The nodes without a taint that the tolerations do not cover."""
        return self._tolerated_by(tolerations).now

    def tolerated_ever(self, tolerations: Sequence[Toleration]) -> Mask:
        """The same, forgiving taints that pass by themselves."""
        return self._tolerated_by(tolerations).ever

    def lasting(self, tolerations: Sequence[Toleration], among: Mask) -> tuple[Taint, ...]:
        """The lasting taints not tolerated that some node of ``among`` carries, sorted."""
        found = self._taints.lasting(tolerations, among)
        return tuple(sorted(found, key=lambda taint: (taint.key, taint.value, taint.effect)))

    def _tolerated_by(self, tolerations: Sequence[Toleration]) -> _Tolerated:
        key = tuple(tolerations)
        if key not in self._tolerated:
            self._tolerated[key] = self._taints.tolerated(key)
        return self._tolerated[key]

    def _carrying(self, labels: Sequence[tuple[str, str]]) -> Mask:
        mask = np.ones(len(self._nodes), dtype=np.bool_)
        for key, value in labels:
            mask &= self._column(key).one_of((value,))
            if not mask.any():
                break
        return mask

    def _matching(self, affinity: NodeAffinity) -> Mask:
        mask = np.zeros(len(self._nodes), dtype=np.bool_)
        for term in affinity.selector_terms:
            met = [self._column(each.key).meeting(each) for each in term.labels]
            met += [self._names.meeting(each) for each in term.names]
            if met:
                mask |= np.logical_and.reduce(met)
        return mask

    @functools.cached_property
    def _keys(self) -> frozenset[str]:
        """Of the labels that nodes carry."""
        return frozenset().union(*(node.labels for node in self._nodes))

    @functools.cached_property
    def _names(self) -> _Column:
        return _Column([node.name for node in self._nodes])

    def _column(self, key: str) -> _Column:
        if key not in self._keys:
            return self._nowhere
        if key not in self._by_label:
            self._by_label[key] = _Column([node.labels.get(key) for node in self._nodes])
        return self._by_label[key]


class _Column:
    """The value of one label on each node; None where a node does not have it."""

    def __init__(self, values: Sequence[str | None]) -> None:
        numbers: dict[str | None, int] = {None: 0}
        self._numbered = np.array(
            [numbers.setdefault(value, len(numbers)) for value in values], dtype=np.int64
        )
        self._number_of = numbers
        self.present: Mask = self._numbered > 0

    def one_of(self, values: Iterable[str]) -> Mask:
        """The nodes on which it is one of these."""
        found = np.zeros(len(self._number_of), dtype=np.bool_)
        found[[self._number_of[value] for value in values if value in self._number_of]] = True
        return found[self._numbered]

    def meeting(self, requirement: NodeRequirement) -> Mask:
        """The nodes that meet the requirement, by ``NodeRequirement.is_met_by``."""
        match requirement.operator:
            case SelectorOperator.IN:
                return self.one_of(requirement.values)
            case SelectorOperator.NOT_IN:
                return ~self.one_of(requirement.values)
            case SelectorOperator.EXISTS:
                return self.present
            case SelectorOperator.DOES_NOT_EXIST:
                return ~self.present
        numeric, numbers, bound = *self._numbers, requirement.bound
        if bound is None:
            return np.zeros(len(self.present), dtype=np.bool_)
        if requirement.operator is SelectorOperator.GT:
            return numeric & (numbers > bound)
        return numeric & (numbers < bound)

    @functools.cached_property
    def _numbers(self) -> tuple[Mask, Ints]:
        """The nodes on which it is an integer, and that."""
        found = [None if value is None else integer(value) for value in self._number_of]
        numeric = np.array([number is not None for number in found], dtype=np.bool_)
        numbers = np.array([number or 0 for number in found], dtype=np.int64)
        return numeric[self._numbered], numbers[self._numbered]


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
    """The effect, key and value that all taints that it covers share; None if it covers none."""
    if toleration.operator in ("", "Equal"):
        return toleration.effect, toleration.key, toleration.value
    if toleration.operator == "Exists":
        return (toleration.effect, toleration.key) if toleration.key else (toleration.effect,)
    return None


class Demands:
    """A role's selector, affinity and tolerations, prepared for thousands of nodes: tolerations are
    looked up by the fields of a taint, as a role may have thousands."""

    def __init__(self, role: Role) -> None:
        self._selector = sorted(role.selector.items())
        self._affinity = role.affinity
        self._tolerated = {_name(toleration) for toleration in role.tolerations}

    def unmet_by(self, node: Node) -> str:
        """What of the node's labels or taints keeps the role's pods away; empty if nothing does."""
        for key, value in self._selector:
            if node.labels.get(key) != value:
                return f"is not labelled {key}={value}"
        if self._affinity is not None and not self._affinity.matches(node.name, node.labels):
            return "does not match the node affinity"
        for taint in node.taints:
            if taint.effect in _KEEPS_AWAY and self._tolerated.isdisjoint(_names(taint)):
                return f"is tainted {taint.key}={taint.value}:{taint.effect}"
        return ""


def _passes(taint: Taint) -> bool:
    return taint.key.startswith(_PASSING)
