"""The network as the Fabric publishes it for scheduling: domains of nodes, and links."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from railwright_api.schema import NAME_LENGTH_MAX, NODES_MAX, NonNegativeDecimal, Part

LEVELS_MAX = 8
LEVEL_LENGTH_MAX = 1024
NODE_LIST_LENGTH_MAX = 1_048_576

Level = Annotated[str, Field(min_length=1, max_length=LEVEL_LENGTH_MAX)]
"""Name of a topology level: the node label that it is read from, or the name in its source."""
DomainName = Annotated[str, Field(max_length=NAME_LENGTH_MAX)]


class DomainLinks(Part):
    """Links that leave one domain."""

    name: DomainName
    """Name of the domain."""
    uplink_nodes: NonNegativeDecimal | None = None
    """Number of its nodes that can send out of it at once, each at the full speed of its adapters.
    None if unknown."""
    reducing: bool = False
    """Whether every switch in it has in-network reduction (SHARP)."""


class LevelLinks(Part):
    """Links between the domains of one level."""

    level: Annotated[str, Field(max_length=LEVEL_LENGTH_MAX)]
    """Name of the level."""
    oversubscription: NonNegativeDecimal
    """Bandwidth of a domain's nodes over that of its uplinks; 1.0 if unknown."""
    domains: Annotated[tuple[DomainLinks, ...], Field(default_factory=tuple, max_length=NODES_MAX)]
    """Domains whose links are known."""


class DomainNodes(Part):
    """Nodes that share their domains at all levels."""

    domains: Annotated[tuple[DomainName, ...], Field(max_length=LEVELS_MAX)]
    """Domain of these nodes at each level, the coarsest first; empty if unknown."""
    nodes: Annotated[str, Field(max_length=NODE_LIST_LENGTH_MAX)]
    """Names of the nodes as a host list, such as gpu-[01-16,20]."""


class SchedulingTopology(Part):
    """Domains of all nodes, and the links between the domains."""

    levels: Annotated[tuple[LevelLinks, ...], Field(default_factory=tuple, max_length=LEVELS_MAX)]
    """Levels, the coarsest first."""
    places: Annotated[tuple[DomainNodes, ...], Field(default_factory=tuple, max_length=NODES_MAX)]
    """Nodes by their domains; each node once."""
