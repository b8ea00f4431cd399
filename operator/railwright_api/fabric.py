"""Fabric: what was found of the network, which placement keeps jobs together on."""

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
    Time,
    rules,
    singleton,
)

LEVELS_MAX = 8
PROBLEMS_MAX = 16
CONFLICTS_MAX = 16
FAULTS_MAX = 16
NETWORKS_MAX = 8
SOURCES_MAX = 32
INSIDES_MAX = 16
SLOW_MAX = 16
AGE_HOURS_MAX = 8760

LEVEL_LENGTH_MAX = 1024
CIDR_LENGTH_MAX = 43

LabelKey = Annotated[
    str,
    Field(
        min_length=1,
        max_length=LABEL_KEY_LENGTH_MAX,
        pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
    ),
]
Level = Annotated[str, Field(min_length=1, max_length=LEVEL_LENGTH_MAX)]
"""What a level of the fabric is called: the node label that tells of it, or the source's name."""


class Probing(Part):
    """Whether agents on the nodes measure how well these reach each other."""

    mode: Literal["Never", "WhenUntold", "Always"] = "WhenUntold"
    """Never; only where no other source says where a node stands; or of every node, to hold what is
    told against it. Nodes that jobs run on are not measured."""
    max_age_hours: Annotated[int, Field(ge=1, le=AGE_HOURS_MAX)] = 168
    """How old what was measured of a node may become before it is measured again, in hours."""
    uplinks: bool = False
    """Whether the links that lead out of each domain are filled too, for a few seconds, to see how
    many nodes can send out of it at once; only while no job runs."""
    networks: Annotated[
        tuple[Annotated[str, Field(max_length=CIDR_LENGTH_MAX)], ...],
        Field(
            max_length=NETWORKS_MAX,
            json_schema_extra={"x-kubernetes-list-type": "set"}
            | rules(
                Rule(
                    "self.all(network, isCIDR(network))",
                    "networks: each is an address and a length, such as 10.10.0.0/16",
                )
            ),
        ),
    ] = ()
    """Networks of the nodes' rails, such as 10.10.0.0/16. Agents answer probes at the address of a
    rail in one of them, else at an address of the node's status, and at no other."""


class FabricSpec(Part):
    """What the site says of its network; more of it in files (ConfigMaps)."""

    levels: Annotated[
        tuple[LabelKey, ...],
        Field(
            max_length=LEVELS_MAX,
            json_schema_extra={"x-kubernetes-list-type": "set"},
        ),
    ] = ()
    """Node labels of the site's own choice whose values name the domains that a node stands in, the
    coarsest first. Labels that clusters commonly carry are found without being named here."""
    probing: Probing = Probing()
    """Whether agents on the nodes measure how well these reach each other."""


class Span(Part):
    """How far a gang spreads at one level of the fabric."""

    level: Level
    """Name of the level."""
    domains: Count
    """Number of its domains that the nodes stand in; each node of no known domain counts as one."""


class LevelDomains(Part):
    """What was found at one level."""

    level: Level
    """Name of the level."""
    source: Level
    """Who told of it."""
    count: Count
    """Number of different domains."""
    smallest: Count
    """Nodes in the smallest domain."""
    largest: Count
    """Nodes in the largest domain."""
    filled: Count = 0
    """Nodes that others than this source told of."""


class Islands(Part):
    """Domains of device links, such as NVLink, that reach beyond one node."""

    source: Level
    """Who told of them."""
    count: Count
    """Number of islands."""
    smallest: Count
    """Nodes on the smallest island."""
    largest: Count
    """Nodes on the largest island."""


class Adapters(Part):
    """Network adapters of one speed."""

    speed: Annotated[str, Field(max_length=32)]
    """Speed of one cable, such as 200 Gb/s."""
    count: Count
    """Number of such adapters."""


class NetworkFound(Part):
    """What follows from the cables that one source tells of."""

    source: Level
    """Who told of them."""
    hosts: Count
    """Number of hosts with a cable."""
    rails: Count
    """Number of rails: sets of adapters with switches of their own. 0 where there are none."""
    adapters: Annotated[tuple[Adapters, ...], Field(max_length=SOURCES_MAX)] = ()
    """Adapters by speed, the fastest first."""
    oversubscription: Annotated[
        tuple[Annotated[str, Field(max_length=32)], ...], Field(max_length=LEVELS_MAX)
    ] = ()
    """What can come from below the switches of each tier over what can leave them upwards, such as
    2:1, from the hosts outwards."""
    reducing_switches: Count = 0
    """Number of switches that were seen to reduce data on its way (SHARP)."""
    faults: Annotated[tuple[Sentence, ...], Field(max_length=FAULTS_MAX)] = ()
    """What is amiss in the cables; the first of them, if there are more."""
    fault_count: Count = 0
    """Number of all faults."""


class RailAstray(Part):
    """A node's rail that does not lead where those of the nodes beside it do."""

    node: Name
    """Name of the node."""
    rail: Count
    """Number of the rail."""
    message: Sentence
    """By which adapter, and why."""


class RailsFound(Part):
    """Whether the rails of nodes lead where they should."""

    nodes: Count
    """Number of nodes whose rails are known."""
    aligned: Count
    """Number of those all of whose rails lead where those of their neighbours do."""
    astray: Annotated[tuple[RailAstray, ...], Field(max_length=FAULTS_MAX)] = ()
    """Rails that do not; the first of them, if there are more."""


class SourceFound(Part):
    """One source of facts, and what it tells."""

    source: Level
    """Name of the source: a family of labels, or a ConfigMap and what its file holds."""
    basis: Literal["Measured", "Told", "Declared", "Seen"]
    """How it came to know, the most trusted last: by measuring how well nodes reach each other, by
    something that told it some time ago, by the site's own people, by seeing who is plugged in
    where."""
    nodes: Count
    """Number of the cluster's nodes that it knows of."""
    tiers: Annotated[tuple[Level, ...], Field(max_length=LEVELS_MAX)] = ()
    """What it calls its tiers, from the nodes outwards."""
    time: Time | None = None
    """When its file was written last, or for probes when the node that waits longest was measured;
    not there where nobody knows."""
    remarks: Annotated[tuple[Sentence, ...], Field(max_length=FAULTS_MAX)] = ()
    """What it shows that nobody can use."""


class AgentsHeard(Part):
    """How many agents told of their nodes since this operator leads."""

    nodes: Count
    """Number of nodes whose agent was heard."""
    silent: Count = 0
    """Number of those of which nothing was heard for fifteen minutes."""


class InsideFound(Part):
    """What nodes of one kind are inside."""

    nodes: Count
    """Number of nodes that are so."""
    first: Name
    """Name of the first of them."""
    found: Sentence
    """Accelerators and what links them, adapters that are rails, and those that are front-end."""
    unknown: Annotated[tuple[Sentence, ...], Field(max_length=FAULTS_MAX)] = ()
    """What no source says of the first of them."""


class SlowFound(Part):
    """A device that is slower than most of its kind."""

    node: Name
    """Name of its node."""
    message: Sentence
    """What was measured of it, beside what is usual."""


class ConflictFound(Part):
    """Two sources that have one node in different places, or see different things inside of it."""

    node: Name
    """Name of the node, the first where there are more like it."""
    level: Level
    """Level of the fabric that they differ at, or the fact of a part inside of the node."""
    source: Level
    """The source that does not count."""
    message: Sentence
    """What it says, and what counts instead, by whom."""


class Problem(Part):
    """What could not be made out of one node, or of one file."""

    node: Name | None = None
    """Name of the node."""
    key: Annotated[str, Field(max_length=LEVEL_LENGTH_MAX)]
    """Level, allocatable resource, or the file with its ConfigMap."""
    message: Sentence
    """What is wrong with it, and what counts instead."""


class FabricStatus(Part):
    """What was found in the cluster."""

    nodes: Count | None = None
    """Number of nodes."""
    summary: Annotated[str, Field(max_length=256)] | None = None
    """Number of domains of each level, the coarsest first, and of rails."""
    domains: Annotated[tuple[LevelDomains, ...], Field(max_length=LEVELS_MAX)] = ()
    """The levels, the coarsest first."""
    islands: Islands | None = None
    """Domains of device links that reach beyond one node."""
    networks: Annotated[tuple[NetworkFound, ...], Field(max_length=NETWORKS_MAX)] = ()
    """Rails, speeds and faults, where a source knows of cables."""
    rails: RailsFound | None = None
    """Whose rails lead where they should; none where no rails are known."""
    sources: Annotated[tuple[SourceFound, ...], Field(max_length=SOURCES_MAX)] = ()
    """Who tells what, the most trusted first."""
    agents: AgentsHeard | None = None
    """Who tells what is inside of nodes."""
    insides: Annotated[tuple[InsideFound, ...], Field(max_length=INSIDES_MAX)] = ()
    """What nodes are inside, where somebody has looked: the most frequent kinds, if there are
    more."""
    measured_nodes: Count | None = None
    """Number of nodes whose devices somebody measured."""
    slow: Annotated[tuple[SlowFound, ...], Field(max_length=SLOW_MAX)] = ()
    """Devices that are slower than most of their kind; the slowest, if there are more."""
    slow_count: Count | None = None
    """Number of all such devices."""
    conflicts: Annotated[tuple[ConflictFound, ...], Field(max_length=CONFLICTS_MAX)] = ()
    """Where sources disagree; the first of them, if there are more."""
    conflict_count: Count | None = None
    """Number of nodes in conflicts, at each level, and of facts inside of nodes."""
    problems: Annotated[tuple[Problem, ...], Field(max_length=PROBLEMS_MAX)] = ()
    """What could not be made out of files and nodes; the first of them, if there are more."""
    problem_count: Count | None = None
    """Number of all such problems."""


class Fabric(Resource):
    """What was found of the network, which placement keeps jobs together on. There is one, named
    default."""

    model_config = ConfigDict(json_schema_extra=singleton("Fabric"))

    kind: Literal["Fabric"] = "Fabric"
    spec: FabricSpec = FabricSpec()
    """What the site says of its network."""
    status: FabricStatus | None = None
    """What was found; written by the operator."""


DEFINITION = Definition(
    Fabric,
    plural=names.FABRICS,
    scope="Cluster",
    categories=("railwright",),
    columns=(
        Column("Nodes", ".status.nodes", "integer"),
        Column("Domains", ".status.summary"),
        Column("Conflicts", ".status.conflictCount", "integer"),
        Column("Problems", ".status.problemCount", "integer"),
        AGE,
    ),
)
