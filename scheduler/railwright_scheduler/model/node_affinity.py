"""The required node affinity of a pod, with the semantics of kube-scheduler's NodeSelector.

A node matches if it meets every requirement of at least one term. A term without requirements
matches no node.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_INT64 = range(-(2**63), 2**63)


class SelectorOperator(StrEnum):
    """How a requirement compares a label with its values."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


@dataclass(frozen=True, slots=True)
class NodeRequirement:
    """A requirement on the label ``key`` of a node, or on its name."""

    key: str
    operator: SelectorOperator
    values: frozenset[str] = frozenset()

    def is_met_by(self, value: str | None) -> bool:
        """Whether a node with this value of the label meets it; None is a node without."""
        match self.operator:
            case SelectorOperator.IN:
                return value in self.values
            case SelectorOperator.NOT_IN:
                return value not in self.values
            case SelectorOperator.EXISTS:
                return value is not None
            case SelectorOperator.DOES_NOT_EXIST:
                return value is None
        number, bound = None if value is None else integer(value), self.bound
        if number is None or bound is None:
            return False
        return number > bound if self.operator is SelectorOperator.GT else number < bound

    @property
    def bound(self) -> int | None:
        """The number that Gt and Lt compare with; None if there is no single one."""
        return integer(min(self.values)) if len(self.values) == 1 else None


@dataclass(frozen=True, slots=True)
class NodeSelectorTerm:
    """Requirements on the ``labels`` of a node, and on its name (``names``), all to be met."""

    labels: tuple[NodeRequirement, ...] = ()
    names: tuple[NodeRequirement, ...] = ()

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether it matches the node of this name with these labels."""
        return (
            bool(self.labels or self.names)
            and all(each.is_met_by(labels.get(each.key)) for each in self.labels)
            and all(each.is_met_by(name) for each in self.names)
        )


@dataclass(frozen=True, slots=True)
class NodeAffinity:
    """The terms, of which one must match."""

    selector_terms: tuple[NodeSelectorTerm, ...]

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether it matches the node of this name with these labels."""
        return any(term.matches(name, labels) for term in self.selector_terms)

    @property
    def size(self) -> int:
        """The number of requirements and of their values."""
        return sum(
            1 + len(each.values)
            for term in self.selector_terms
            for each in (*term.labels, *term.names)
        )


def integer(text: str) -> int | None:
    """A 64-bit integer as Go reads it from a label; None if the text is none."""
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if number in _INT64 else None
