"""Where the nodes of a TrainingJob have to stand, as its user says."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from railwright_api.fabric import LEVEL_LENGTH_MAX
from railwright_api.schema import NODES_MAX, Part

Tier = Annotated[str, Field(min_length=1, max_length=LEVEL_LENGTH_MAX)]


class Segment(Part):
    """Node ranks that follow each other and have to stand together."""

    tier: Tier
    """Tier of which one domain holds all nodes of a segment."""
    nodes: Annotated[int, Field(ge=1, le=NODES_MAX)]
    """Number of nodes of each segment; numNodes is a multiple of it."""


class Spread(Part):
    """How far the nodes have to be apart."""

    tier: Tier
    """Tier of which no domain holds more nodes of the job."""
    nodes: Annotated[int, Field(ge=1, le=NODES_MAX)]
    """Number of nodes that one domain may hold."""


class Topology(Part):
    """Topology constraints of a job, whose nodes are always placed as near to each other as
    possible. A tier is the name of a level of the Fabric, or one of: nearest, the finest level
    whose domains have several nodes, such as racks; second or third, the levels around it;
    scale-up-domain, the domains of device links, such as NVLink, that reach beyond one node."""

    required: Tier | None = None
    """Tier of which one domain has to hold all nodes; the job waits until one can."""
    preferred: Tier | None = None
    """Tier of which one domain holds all nodes where one can; else one of a tier further out."""
    segment: Segment | None = None
    """Runs of node ranks that have to stand together."""
    spread: Spread | None = None
    """How many nodes one domain may hold at most."""
    rails: Literal["Aligned"] | None = None
    """Aligned takes only nodes all of whose rails lead where those of their neighbours do, and that
    have their adapters on the same rails in the same order, so that ranks of one number have one
    rail on all nodes; nodes of which no rails are known do not count."""
