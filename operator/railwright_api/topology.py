"""Where the nodes of a TrainingJob have to stand, as its user says."""

from __future__ import annotations

import itertools
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator

from railwright_api.interconnect import LEVEL_LENGTH_MAX
from railwright_api.schema import NODES_MAX, Json, Part, Rule, rules

Tier = Annotated[str, Field(min_length=1, max_length=LEVEL_LENGTH_MAX)]


class Segment(Part):
    """Consecutive node ranks that must share a domain."""

    tier: Tier
    """Tier of which one domain must hold all nodes of a segment."""
    nodes: Annotated[int, Field(ge=1, le=NODES_MAX)]
    """Number of nodes in each segment. It is a multiple of that of the segments before, and divides
    the replicas of a role."""


class Spread(Part):
    """Maximum number of nodes of the job in one domain."""

    tier: Tier
    """Tier of the domains."""
    nodes: Annotated[int, Field(ge=1, le=NODES_MAX)]
    """Maximum number of nodes of the job in each domain of the tier."""


LIMITS_MAX = 4
"""A network has a few tiers, and each is limited once."""

_BY_TIER: Json = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["tier"]}

_UNEVEN = (
    f"{[*range(1, LIMITS_MAX)]}.filter(i, i < self.segments.size() && "
    "self.segments[i].nodes % self.segments[i - 1].nodes != 0)"
)
_NESTED = Rule(
    f"!has(self.segments) || {_UNEVEN}.size() == 0",
    "topology.segments has %d nodes of %s after %d nodes of %s: expected a multiple of %d, such as "
    "%d, as each segment consists of those before; the smallest come first",
    seen=tuple(
        f"{_UNEVEN}.map(i, {each})[0]"
        for each in (
            "self.segments[i].nodes",
            "self.segments[i].tier",
            "self.segments[i - 1].nodes",
            "self.segments[i - 1].tier",
            "self.segments[i - 1].nodes",
            "(self.segments[i].nodes / self.segments[i - 1].nodes + 1) * "
            "self.segments[i - 1].nodes",
        )
    ),
    field=".segments",
)
_NARROW = "self.spread.filter(p, self.segments.exists(s, s.tier == p.tier && s.nodes > p.nodes))"
_ROOM = Rule(
    f"!has(self.segments) || !has(self.spread) || {_NARROW}.size() == 0",
    "topology.spread has %d nodes of %s, which is less than a segment of %d in such a domain: "
    "expected %d or more",
    seen=(
        f"{_NARROW}[0].nodes",
        f"{_NARROW}[0].tier",
        *(2 * (f"self.segments.filter(s, s.tier == {_NARROW}[0].tier)[0].nodes",)),
    ),
    field=".spread",
)


TOO_NARROW = (
    "topology.required puts %d replicas into one domain of %s, and topology.spread allows %d: "
    "expected another tier in one of them"
)


class Topology(Part):
    """Topology constraints of a job, whose nodes are always placed as near to each other as
    possible. A tier is the name of a level of the Fabric, or one of: nearest, the finest level
    whose domains have several nodes, such as racks; second or third, the levels around it;
    scale-up-domain, the domains of device links, such as NVLink, that reach beyond one node."""

    model_config = ConfigDict(json_schema_extra=rules(_NESTED, _ROOM))

    required: Tier | None = None
    """Tier of which one domain must hold all nodes. The job waits until one can."""
    preferred: Tier | None = None
    """Tier of which one domain should hold all nodes. If none can, a domain of a coarser tier is
    used."""
    segments: Annotated[
        tuple[Segment, ...], Field(max_length=LIMITS_MAX, json_schema_extra=_BY_TIER)
    ] = ()
    """Consecutive node ranks that must share a domain, such as each 4 in one scale-up domain and
    each 16 in one rack. The smallest come first, and each consists of whole ones before it."""
    spread: Annotated[
        tuple[Spread, ...], Field(max_length=LIMITS_MAX, json_schema_extra=_BY_TIER)
    ] = ()
    """Maximum number of nodes of the job in one domain, for each of these tiers."""
    rails: Literal["Aligned"] | None = None
    """Aligned restricts the job to nodes whose adapters on the rails are connected to the same
    switches as those of their neighbours, in the same order, so that ranks of one number share a
    rail on all nodes. Nodes whose rails are not known are excluded."""

    @property
    def segment(self) -> int:
        """The size of the largest segments."""
        return self.segments[-1].nodes if self.segments else 1

    def check_required(self, replicas: int) -> None:
        """Raise ValueError if a role of so many replicas may not be in one required domain."""
        for limit in self.spread:
            if limit.tier == self.required and limit.nodes < replicas:
                raise ValueError(TOO_NARROW % (replicas, limit.tier, limit.nodes))

    @model_validator(mode="after")
    def _is_consistent(self) -> Topology:
        for before, each in itertools.pairwise(self.segments):
            if each.nodes % before.nodes:
                near = (each.nodes // before.nodes + 1) * before.nodes
                seen = each.nodes, each.tier, before.nodes, before.tier, before.nodes, near
                raise ValueError(_NESTED.message % seen)
        sizes = {each.tier: each.nodes for each in self.segments}
        for limit in self.spread:
            if (size := sizes.get(limit.tier, 0)) > limit.nodes:
                raise ValueError(_ROOM.message % (limit.nodes, limit.tier, size, size))
        return self
