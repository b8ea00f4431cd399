"""SharedMap's mapping onto a hierarchy whose domains are all of one size, in its strongest mode.

It is given the same exchanges with the ranks' numbers scrambled, no imbalance, and one thread.
"""

from __future__ import annotations

import numpy as np
from chszlablib import Decomposition, Graph

from bench import hierarchy
from railwright_scheduler.arrays import Ints
from railwright_scheduler.communication.traffic_matrix import TrafficMatrix
from railwright_scheduler.mapping.problem import Places, cost


def mapped(exchanges: TrafficMatrix, places: Places, *, seed: int) -> Ints | None:
    """The place of each rank; none where domains are of unequal size."""
    whole = hierarchy.of(places)
    if not whole.is_whole:
        return None
    scrambled = np.random.default_rng(seed).permutation(exchanges.ranks)
    graph = _graph(exchanges, scrambled)
    found = Decomposition.process_map(
        graph,
        hierarchy=whole.sizes[::-1],
        distance=whole.distance[::-1],
        mode="strong",
        imbalance=0.0,
        threads=1,
        seed=seed,
    )
    where: Ints = np.asarray(found.assignment, dtype=np.int64)[scrambled]
    assert len(np.unique(where)) == exchanges.ranks, "it put two ranks into one place"
    # It counts both directions, and knows distances as we do.
    assert found.comm_cost == 2 * round(cost(exchanges, places, where)), found.comm_cost
    return where


def _graph(exchanges: TrafficMatrix, scrambled: Ints) -> Graph:
    one, other = scrambled[exchanges.a], scrambled[exchanges.b]
    ends, fars = np.concatenate([one, other]), np.concatenate([other, one])
    order = np.lexsort([fars, ends])
    weights = np.round(np.concatenate([exchanges.weight] * 2)[order]).astype(np.int64)
    first = np.concatenate([[0], np.cumsum(np.bincount(ends, minlength=exchanges.ranks))])
    return Graph.from_csr(first, fars[order], edge_weights=weights)
