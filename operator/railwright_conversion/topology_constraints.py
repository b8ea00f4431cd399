"""The topology constraints of a job, from its spec to the scheduler's value."""

from __future__ import annotations

from railwright_api.topology import Topology
from railwright_scheduler.model.snapshot import NO_CONSTRAINTS, TierLimit, TopologyConstraints


def convert(topology: Topology | None) -> TopologyConstraints:
    """The constraints of a job's ``spec.topology``."""
    if topology is None:
        return NO_CONSTRAINTS
    return TopologyConstraints(
        required=topology.required or "",
        preferred=topology.preferred or "",
        segments=tuple(TierLimit(each.tier, each.nodes) for each in topology.segments),
        spreads=tuple(TierLimit(each.tier, each.nodes) for each in topology.spread),
        aligned=topology.rails is not None,
    )
