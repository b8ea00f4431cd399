"""The topology constraints of a job, from its spec to the scheduler's value."""

from __future__ import annotations

from railwright_api.topology import Topology
from railwright_scheduler.model.snapshot import NO_CONSTRAINTS, TopologyConstraints


def convert(topology: Topology | None) -> TopologyConstraints:
    """The constraints of a job's ``spec.topology``."""
    if topology is None:
        return NO_CONSTRAINTS
    segment, spread = topology.segment, topology.spread
    return TopologyConstraints(
        required=topology.required or "",
        preferred=topology.preferred or "",
        segment=segment.nodes if segment else 0,
        segment_tier=segment.tier if segment else "",
        spread=spread.nodes if spread else 0,
        spread_tier=spread.tier if spread else "",
        aligned=topology.rails is not None,
    )
