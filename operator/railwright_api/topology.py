"""Where the nodes of a TrainingJob have to stand, as its user says."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from railwright_api.fabric import LEVEL_LENGTH_MAX
from railwright_api.schema import NODES_MAX, Part

Tier = Annotated[str, Field(min_length=1, max_length=LEVEL_LENGTH_MAX)]


class Segment(Part):
    """Consecutive node ranks that must share a domain."""

    tier: Tier
    """Tier of which one domain must hold all nodes of a segment."""
    nodes: Annotated[int, Field(ge=1, le=NODES_MAX)]
    """Number of nodes in each segment. The replicas of a role must be a multiple of it."""


class Spread(Part):
    """Maximum number of nodes of the job in one domain."""

    tier: Tier
    """Tier of the domains."""
    nodes: Annotated[int, Field(ge=1, le=NODES_MAX)]
    """Maximum number of nodes of the job in each domain of the tier."""


class Topology(Part):
    """Topology constraints of a job, whose nodes are always placed as near to each other as
    possible. A tier is the name of a level of the Fabric, or one of: nearest, the finest level
    whose domains have several nodes, such as racks; second or third, the levels around it;
    scale-up-domain, the domains of device links, such as NVLink, that reach beyond one node."""

    required: Tier | None = None
    """Tier of which one domain must hold all nodes. The job waits until one can."""
    preferred: Tier | None = None
    """Tier of which one domain should hold all nodes. If none can, a domain of a coarser tier is
    used."""
    segment: Segment | None = None
    """Consecutive node ranks that must share a domain."""
    spread: Spread | None = None
    """Maximum number of nodes of the job in one domain."""
    rails: Literal["Aligned"] | None = None
    """Aligned restricts the job to nodes whose adapters on the rails are connected to the same
    switches as those of their neighbours, in the same order, so that ranks of one number share a
    rail on all nodes. Nodes whose rails are not known are excluded."""
