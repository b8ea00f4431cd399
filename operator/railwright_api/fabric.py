"""Fabric: the topology of the network, which the scheduler places jobs by."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from railwright_api import names
from railwright_api.interconnect import LEVEL_LENGTH_MAX, LEVELS_MAX, Level, SchedulingTopology
from railwright_api.schema import (
    AGE,
    LABEL_KEY_LENGTH_MAX,
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

PROBLEMS_MAX = 16
CONFLICTS_MAX = 16
FAULTS_MAX = 16
NETWORKS_MAX = 8
SOURCES_MAX = 32
HARDWARE_MAX = 16
SLOW_MAX = 16
AGE_HOURS_MAX = 8760

CIDR_LENGTH_MAX = 43

LabelKey = Annotated[
    str,
    Field(
        min_length=1,
        max_length=LABEL_KEY_LENGTH_MAX,
        pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
    ),
]


class Probing(Part):
    """Whether node agents measure latency and bandwidth between nodes."""

    mode: Literal["Never", "WhenUnknown", "Always"] = "WhenUnknown"
    """When nodes are measured. Never; WhenUnknown: nodes without topology information from another
    source; Always: all nodes, to verify the other sources. Nodes with a pod that requests devices
    or belongs to a TrainingJob are not measured."""
    max_age_hours: Annotated[int, Field(ge=1, le=AGE_HOURS_MAX)] = 168
    """Age in hours at which the measurements of a node expire and it is measured again."""
    uplinks: bool = False
    """Whether to measure the uplinks of each domain under load for a few seconds, to find how many
    nodes can send out of it at once. Only done while no node is busy."""
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
    """Configuration of topology discovery. ConfigMaps hold further files."""

    levels: Annotated[
        tuple[LabelKey, ...],
        Field(
            max_length=LEVELS_MAX,
            json_schema_extra={"x-kubernetes-list-type": "set"},
        ),
    ] = ()
    """Additional node labels whose values name the domains of a node, the coarsest first. Common
    topology labels are read without being listed here."""
    probing: Probing = Probing()
    """Whether node agents measure latency and bandwidth between nodes."""


class Span(Part):
    """How far a gang spreads at one level of the fabric."""

    level: Level
    """Name of the level."""
    domains: Count
    """Number of its domains that have nodes of the job; each node without a known domain counts as
    one."""


class LevelDomains(Part):
    """Domains of one level."""

    level: Level
    """Name of the level."""
    source: Level
    """Name of the source."""
    count: Count
    """Number of different domains."""
    smallest: Count
    """Nodes in the smallest domain."""
    largest: Count
    """Nodes in the largest domain."""
    filled: Count = 0
    """Nodes whose domain is from another source than this one."""


class ScaleUpDomains(Part):
    """Domains of device links, such as NVLink, that reach beyond one node."""

    source: Level
    """Name of the source."""
    count: Count
    """Number of scale-up domains."""
    smallest: Count
    """Nodes in the smallest domain."""
    largest: Count
    """Nodes in the largest domain."""


class Adapters(Part):
    """Network adapters of one speed."""

    speed: Annotated[str, Field(max_length=32)]
    """Speed of one cable, such as 200 Gb/s."""
    count: Count
    """Number of such adapters."""


class NetworkFound(Part):
    """Properties of one network, derived from the cables that one source reports."""

    source: Level
    """Name of the source."""
    hosts: Count
    """Number of hosts with a cable."""
    rails: Count
    """Number of rails: sets of adapters with switches of their own. 0 where there are none."""
    adapters: Annotated[tuple[Adapters, ...], Field(max_length=SOURCES_MAX)] = ()
    """Adapters by speed, the fastest first."""
    oversubscription: Annotated[
        tuple[Annotated[str, Field(max_length=32)], ...], Field(max_length=LEVELS_MAX)
    ] = ()
    """Ratio of downlink to uplink bandwidth of the switches of each tier, such as 2:1, from the
    hosts outwards."""
    reducing_switches: Count = 0
    """Number of switches with in-network reduction (SHARP)."""
    faults: Annotated[tuple[Sentence, ...], Field(max_length=FAULTS_MAX)] = ()
    """Cabling faults; the first of them, if there are more."""
    fault_count: Count = 0
    """Number of all faults."""


class MiscabledRail(Part):
    """A rail that is cabled to a switch of another rail than on neighbouring nodes."""

    node: Name
    """Name of the node."""
    rail: Count
    """Number of the rail."""
    message: Sentence
    """The adapter, and the reason."""


class RailsFound(Part):
    """Rail alignment of the nodes."""

    nodes: Count
    """Number of nodes whose rails are known."""
    aligned: Count
    """Number of nodes without miscabled rails."""
    miscabled: Annotated[tuple[MiscabledRail, ...], Field(max_length=FAULTS_MAX)] = ()
    """Miscabled rails; the first of them, if there are more."""


class SourceFound(Part):
    """One source of topology information."""

    source: Level
    """Name of the source: a family of labels, or a ConfigMap and what its file holds."""
    provenance: Literal["Measured", "Imported", "Declared", "Seen"]
    """How the source got its information, the most trusted last. Measured: by probes between nodes.
    Imported: from labels and files that other tools wrote. Declared: by the administrators of the
    site. Seen: from switches and adapters."""
    nodes: Count
    """Number of the cluster's nodes that it covers."""
    tiers: Annotated[tuple[Level, ...], Field(max_length=LEVELS_MAX)] = ()
    """Names of its tiers, from the nodes outwards."""
    time: Time | None = None
    """Time of the last write to its file; for probes, time of the oldest measurement of a node.
    Absent if unknown."""
    remarks: Annotated[tuple[Sentence, ...], Field(max_length=FAULTS_MAX)] = ()
    """Contents that were left out, with the reason."""


class AgentCounts(Part):
    """Node agents that reported since the controllers started."""

    nodes: Count
    """Number of nodes whose agent reported; invalid reports do not count."""
    silent: Count = 0
    """Number of agents without a report for fifteen minutes."""


class Freshness(Part):
    """How recent this status is. It is written once a minute."""

    checked: Time
    """Time at which the controllers last compared the sources with this status."""
    oldest_report: Time | None = None
    """Time of the oldest one of the agents' last reports; absent if there are none."""


class NodeHardware(Part):
    """Hardware of the nodes of one kind."""

    nodes: Count
    """Number of nodes of this kind."""
    first: Name
    """Name of the first of them."""
    found: Sentence
    """Accelerators and what links them, adapters that are rails, and those that are front-end."""
    unknown: Annotated[tuple[Sentence, ...], Field(max_length=FAULTS_MAX)] = ()
    """Properties of the first of them that no source reports."""


class SlowFound(Part):
    """A device that is slower than most of its kind."""

    node: Name
    """Name of its node."""
    message: Sentence
    """The measured and the usual speed."""


class ConflictFound(Part):
    """A node for which two sources report different domains or different hardware."""

    node: Name
    """Name of the node; of the first one, if there are several."""
    level: Level
    """Topology level, or hardware property, that differs."""
    source: Level
    """The less trusted source, which is not used."""
    message: Sentence
    """The value that it reports, the value that is used, and the source of that."""


class Problem(Part):
    """Something in a node or a file that could not be read."""

    node: Name | None = None
    """Name of the node."""
    key: Annotated[str, Field(max_length=LEVEL_LENGTH_MAX)]
    """Level, allocatable resource, or the file with its ConfigMap."""
    message: Sentence
    """The error, and the value that is used instead."""


class FabricStatus(Part):
    """Discovered topology of the cluster."""

    nodes: Count | None = None
    """Number of nodes."""
    summary: Annotated[str, Field(max_length=256)] | None = None
    """Number of domains of each level, the coarsest first, and of rails."""
    domains: Annotated[tuple[LevelDomains, ...], Field(max_length=LEVELS_MAX)] = ()
    """The levels, the coarsest first."""
    topology: SchedulingTopology | None = None
    """Domain of each node and the links between domains, which jobs are placed by."""
    scale_up_domains: ScaleUpDomains | None = None
    """Domains of device links, such as NVLink, that reach beyond one node."""
    networks: Annotated[tuple[NetworkFound, ...], Field(max_length=NETWORKS_MAX)] = ()
    """Rails, speeds and faults of each network whose cables a source reports."""
    rails: RailsFound | None = None
    """Rail alignment; absent if no rails are known."""
    sources: Annotated[tuple[SourceFound, ...], Field(max_length=SOURCES_MAX)] = ()
    """Sources of topology information, the most trusted first."""
    agents: AgentCounts | None = None
    """Node agents."""
    freshness: Freshness | None = None
    """How recent this status is; old if the controllers are down."""
    hardware: Annotated[tuple[NodeHardware, ...], Field(max_length=HARDWARE_MAX)] = ()
    """Hardware of the nodes by kind; the most frequent kinds, if there are more."""
    measured_nodes: Count | None = None
    """Number of nodes whose devices were benchmarked."""
    slow: Annotated[tuple[SlowFound, ...], Field(max_length=SLOW_MAX)] = ()
    """Devices that are slower than most of their kind; the slowest, if there are more."""
    slow_count: Count | None = None
    """Number of all such devices."""
    conflicts: Annotated[tuple[ConflictFound, ...], Field(max_length=CONFLICTS_MAX)] = ()
    """Conflicts between sources; the first of them, if there are more."""
    conflict_count: Count | None = None
    """Number of conflicts: nodes at each level, and hardware properties."""
    problems: Annotated[tuple[Problem, ...], Field(max_length=PROBLEMS_MAX)] = ()
    """Errors in files and nodes; the first of them, if there are more."""
    problem_count: Count | None = None
    """Number of all such problems."""


class Fabric(Resource):
    """Fabric describes the topology of the cluster's network, by which jobs are placed. There is
    one, named default."""

    model_config = ConfigDict(json_schema_extra=singleton("Fabric"))

    kind: Literal["Fabric"] = "Fabric"
    spec: FabricSpec = FabricSpec()
    """Configuration of topology discovery."""
    status: FabricStatus | None = None
    """Discovered topology; written by the controllers."""


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
        Column("Slow", ".status.slowCount", "integer"),
        Column("Silent", ".status.agents.silent", "integer"),
        Column("Checked", ".status.freshness.checked", "date"),
        AGE,
    ),
)
