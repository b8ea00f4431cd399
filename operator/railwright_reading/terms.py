"""What a job asks of where its nodes stand, as its user says it and as the scheduler decides by."""

from __future__ import annotations

from railwright_api.topology import Topology
from railwright_scheduler.snapshot import Terms


def terms(said: Topology) -> Terms:
    """The same for the scheduler."""
    segment, spread = said.segment, said.spread
    return Terms(
        required=said.required or "",
        preferred=said.preferred or "",
        segment=segment.nodes if segment else 0,
        segment_tier=segment.tier if segment else "",
        spread=spread.nodes if spread else 0,
        spread_tier=spread.tier if spread else "",
        aligned=said.rails is not None,
    )
