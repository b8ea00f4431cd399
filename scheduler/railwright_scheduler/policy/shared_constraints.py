"""Apply the topology constraints that several roles of a job share to one role after the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from railwright_scheduler.cluster import Cluster, Ints, Mask
from railwright_scheduler.placement import ResolvedConstraints
from railwright_scheduler.placement.constraints import UNLIMITED


def beside_shared(
    cluster: Cluster, allowed: Mask, limits: ResolvedConstraints, shared: Sequence[Ints]
) -> Mask:
    """Of these nodes those that the job's constraints leave once pods of earlier roles are on the
    ``shared`` nodes: in their domain of the required level, and in each domain no more than the
    spread leaves."""
    if not shared:
        return allowed
    domains, nodes = cluster.domains, np.concatenate(list(shared))
    if limits.within:
        of_node = domains.of_node[limits.within]
        allowed = allowed & (of_node == of_node[nodes[0]])
    if limits.spread >= UNLIMITED:
        return allowed
    of_node = domains.of_node[limits.spread_level]
    left = np.full(int(of_node.max(initial=0)) + 1, limits.spread, dtype=np.int64)
    np.subtract.at(left, of_node[nodes], 1)
    columns = np.flatnonzero(allowed)
    columns = columns[np.argsort(of_node[columns], kind="stable")]
    owner = of_node[columns]
    place = np.arange(len(columns)) - np.searchsorted(owner, owner)
    allowed = np.zeros_like(allowed)
    allowed[columns[place < left[owner]]] = True
    return allowed
