"""Fabric: the levels of the network that placement keeps jobs together on, and what was found."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from railwright_api import names
from railwright_api.pod_template import LABEL_KEY_LENGTH_MAX
from railwright_api.schema import (
    AGE,
    Column,
    Count,
    Definition,
    Name,
    Part,
    Resource,
    Rule,
    Sentence,
    rules,
)

LEVELS_MAX = 8
PROBLEMS_MAX = 16

Level = Annotated[
    str,
    Field(
        min_length=1,
        max_length=LABEL_KEY_LENGTH_MAX,
        pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
    ),
]


class FabricSpec(Part):
    """How the network is layered."""

    levels: Annotated[
        tuple[Level, ...],
        Field(
            min_length=1,
            max_length=LEVELS_MAX,
            json_schema_extra={"x-kubernetes-list-type": "set"},
        ),
    ] = (names.LABEL_BLOCK, names.LABEL_RACK)
    """Node labels whose values name the domains a node stands in, the coarsest first. A node
    without the label stands in no known domain of that level."""


class Span(Part):
    """How far a gang spreads at one level of the fabric."""

    level: Level
    """Node label of the level."""
    domains: Count
    """Number of its domains that the nodes stand in; each node without the label counts as one."""


class LevelDomains(Part):
    """What was found at one level."""

    level: Level
    """Node label of the level."""
    count: Count
    """Number of different domains."""


class NodeProblem(Part):
    """What could not be made out of one node."""

    node: Name
    """Name of the node."""
    key: Name
    """Label, or allocatable resource."""
    message: Sentence
    """What is wrong with its value, and what counts instead."""


class FabricStatus(Part):
    """What was found in the cluster."""

    nodes: Count | None = None
    """Number of nodes."""
    domains: Annotated[tuple[LevelDomains, ...], Field(max_length=LEVELS_MAX)] = ()
    """Number of domains of each level, the coarsest first."""
    problems: Annotated[tuple[NodeProblem, ...], Field(max_length=PROBLEMS_MAX)] = ()
    """What could not be made out of nodes, by their names; the first of them, if there are more."""
    problem_count: Count | None = None
    """Number of all such problems."""


class Fabric(Resource):
    """The levels of the network that placement keeps jobs together on. There is one, named
    default."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                f"self.metadata.name == '{names.SINGLETON}'",
                f'metadata.name: "%s" is not "{names.SINGLETON}": a cluster has one Fabric',
                seen=("self.metadata.name",),
            )
        )
    )

    kind: Literal["Fabric"] = "Fabric"
    spec: FabricSpec = FabricSpec()
    """How the network is layered."""
    status: FabricStatus | None = None
    """What was found; written by the operator."""


DEFINITION = Definition(
    Fabric,
    plural=names.FABRICS,
    scope="Cluster",
    categories=("railwright",),
    columns=(
        Column("Nodes", ".status.nodes", "integer"),
        Column("Levels", ".spec.levels"),
        Column("Problems", ".status.problemCount", "integer"),
        AGE,
    ),
)
