"""The required node affinity of a pod, from its spec to the scheduler's values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from railwright_scheduler.model.node_affinity import (
    NodeAffinity,
    NodeRequirement,
    NodeSelectorTerm,
    SelectorOperator,
)

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def convert(spec: Mapping[str, Any]) -> NodeAffinity | None:
    """The required node affinity of a pod; None if it has none. Raises ValueError or KeyError."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get(REQUIRED)
    if required is None:
        return None
    return NodeAffinity(tuple(map(_term, required["nodeSelectorTerms"])))


def _term(found: Mapping[str, Any]) -> NodeSelectorTerm:
    return NodeSelectorTerm(
        labels=tuple(map(_requirement, found.get("matchExpressions") or ())),
        names=tuple(map(_requirement, found.get("matchFields") or ())),
    )


def _requirement(found: Mapping[str, Any]) -> NodeRequirement:
    return NodeRequirement(
        key=found["key"],
        operator=SelectorOperator(found["operator"]),
        values=frozenset(found.get("values") or ()),
    )
