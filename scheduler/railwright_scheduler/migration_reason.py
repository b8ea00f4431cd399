"""Describe why a running job migrates, for its events and its status."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from railwright_scheduler.arrays import Ints
from railwright_scheduler.cluster import Cluster
from railwright_scheduler.migration_cost import WORTH, MigrationCost
from railwright_scheduler.model.snapshot import Node

_NAMED_MAX = 4


def sentence(
    cost: MigrationCost,
    floor: Cluster,
    nodes: Ints,
    *,
    before: tuple[str, ...],
    after: tuple[str, ...],
) -> str:
    """Why a job that runs on these ``nodes`` (columns), ``before`` by name, migrates to the nodes
    ``after``, and what that saves."""
    why = _why(floor, nodes)
    moved = [rank for rank, pair in enumerate(zip(before, after, strict=True)) if len({*pair}) > 1]
    named = ", ".join(f"{rank} to {after[rank]}" for rank in moved[:_NAMED_MAX])
    more = ", …" if len(moved) > _NAMED_MAX else ""
    return (
        f"{why}; a step is predicted to take {cost.now_s:.3g} s now, and {cost.then_s:.3g} s if "
        f"{len(moved)} of {len(after)} node ranks move ({named}{more}): this saves "
        f"{_time(cost.saved_s)} of the remaining {_time(cost.left * cost.now_s)}, and costs "
        f"{_time(cost.cost_s)}"
    )


def _why(floor: Cluster, nodes: Ints) -> str:
    """The uplinks with the least bandwidth between its nodes, and the slowest node."""
    found = [*_narrowest(floor, nodes)][-1:]
    slowest = min((floor.nodes[at] for at in nodes.tolist()), key=_slowest_speed)
    if _slowest_speed(slowest) < WORTH:
        found.append(
            f"{slowest.name} runs at {_slowest_speed(slowest):.2g} of the rate of its kind"
        )
    return " and ".join(found) or "links or nodes changed since the job was placed"


def _narrowest(floor: Cluster, nodes: Ints) -> Iterator[str]:
    """The uplinks with less bandwidth than the job's nodes below, each less than those before."""
    least = 1.0
    for level, tier in enumerate(floor.uplinks):
        here, counts = np.unique(tier.domains[nodes], return_counts=True)
        shares = tier.capacity[here] / counts
        if len(here) > 1 and shares.min() < least:
            at = int(shares.argmin())
            least = float(shares[at])
            members = nodes[tier.domains[nodes] == here[at]]
            domain = floor.nodes[int(members[0])].domains[level]
            bandwidth = f"the bandwidth of {float(tier.capacity[here[at]]):.3g} nodes"
            yield f"the uplinks of {domain} have {bandwidth}, for {len(members)} nodes of the job"


def _slowest_speed(node: Node) -> float:
    return min(node.relative_speed.products, node.relative_speed.memory)


def _time(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.1f} min"
