"""The node affinity of a pod: by which labels and names of nodes its nodes are chosen.

Required terms are honoured as kube-scheduler does. Preferred terms and affinity to pods have no
meaning for a gang that is placed by the network: they are refused, so that no job counts on them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from railwright_api.schema import (
    LIST,
    OBJECT,
    LabelKey,
    LabelValue,
    Name,
    Part,
    Rule,
    reserving,
    rules,
)

TERMS_MAX = 16
REQUIREMENTS_MAX = 16
VALUES_MAX = 256

_COUNT = "(has(self.values) ? size(self.values) : 0)"
_LISTED = Rule(
    f"!(self.operator in ['In', 'NotIn']) || {_COUNT} > 0",
    'values of "%s" is empty: operator %s needs at least one value',
    seen=("self.key", "self.operator"),
    field=".values",
)
_UNLISTED = Rule(
    f"!(self.operator in ['Exists', 'DoesNotExist']) || {_COUNT} == 0",
    'values of "%s" has %d values: operator %s takes none, remove them',
    seen=("self.key", _COUNT, "self.operator"),
    field=".values",
)
_COMPARED = Rule(
    "!(self.operator in ['Gt', 'Lt']) || "
    f"({_COUNT} == 1 && self.values[0].matches('^[0-9]{{1,18}}$'))",
    'values of "%s" is not one whole number of at most 18 digits, which operator %s needs',
    seen=("self.key", "self.operator"),
    field=".values",
)


class LabelRequirement(Part):
    """A requirement on one label of a node."""

    model_config = ConfigDict(json_schema_extra=rules(_LISTED, _UNLISTED, _COMPARED))

    key: LabelKey
    """Key of the label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    """In, NotIn, Exists, DoesNotExist, Gt or Lt. NotIn and DoesNotExist match nodes without the
    label; Gt and Lt match nodes whose label is a whole number greater or less than the value."""
    values: Annotated[tuple[LabelValue, ...], Field(max_length=VALUES_MAX)] | None = None
    """At least one for In and NotIn, none for Exists and DoesNotExist, one number for Gt and Lt."""


class FieldRequirement(Part):
    """A requirement on the name of a node."""

    key: Literal["metadata.name"]
    """The field: metadata.name."""
    operator: Literal["In", "NotIn"]
    """In or NotIn."""
    values: Annotated[tuple[Name, ...], Field(min_length=1, max_length=1)]
    """One name of a node."""


class NodeSelectorTerm(Part):
    """Requirements that a node must meet together. A term without any matches no node."""

    match_expressions: (
        Annotated[tuple[LabelRequirement, ...], Field(max_length=REQUIREMENTS_MAX)] | None
    ) = None
    """Requirements on labels."""
    match_fields: (
        Annotated[tuple[FieldRequirement, ...], Field(max_length=REQUIREMENTS_MAX)] | None
    ) = None
    """Requirements on the name."""


class NodeSelector(Part):
    """Terms of which a node must match at least one."""

    node_selector_terms: Annotated[
        tuple[NodeSelectorTerm, ...], Field(min_length=1, max_length=TERMS_MAX)
    ]
    """The terms; a node that matches one of them is used."""


class NodeAffinity(Part):
    """Which nodes are used, by their labels and names."""

    model_config = ConfigDict(
        json_schema_extra=reserving(
            {
                "preferredDuringSchedulingIgnoredDuringExecution": (
                    LIST,
                    "Railwright places by the network: use "
                    "requiredDuringSchedulingIgnoredDuringExecution",
                )
            }
        )
    )

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    """Only nodes that match this and nodeSelector are used. Pods stay on a node whose labels change
    later; the next attempt follows the labels as they are then."""


class Affinity(Part):
    """Which nodes are used, by a nodeAffinity."""

    model_config = ConfigDict(
        json_schema_extra=reserving(
            {
                name: (OBJECT, "Railwright places by the network: use spec.topology")
                for name in ("podAffinity", "podAntiAffinity")
            }
        )
    )

    node_affinity: NodeAffinity | None = None
    """Which nodes are used, by their labels and names."""
