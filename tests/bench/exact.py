"""The best way there is to lay a few nodes out, found by trying all that differ by more than names.

Which ranks share a node is given; of that the least cost is proven, by branch and bound.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from railwright_scheduler.arrays import Floats, Ints
from railwright_scheduler.communication.traffic_matrix import TrafficMatrix
from railwright_scheduler.mapping.problem import Places

NODES_MAX = 10


def mapped(exchanges: TrafficMatrix, places: Places) -> Ints:
    """The place of each node."""
    weight = np.zeros((exchanges.ranks, exchanges.ranks))
    weight[exchanges.a, exchanges.b] = weight[exchanges.b, exchanges.a] = exchanges.weight
    everywhere = np.arange(places.count)
    distance = places.between(
        np.repeat(everywhere, len(everywhere)), np.tile(everywhere, len(everywhere))
    )
    search = _Search(places, weight, distance.reshape(len(everywhere), -1))
    search.extend([], 0.0)
    return np.array(search.best)


@dataclass(slots=True)
class _Search:
    places: Places
    weight: Floats
    distance: Floats
    least: float = np.inf
    best: list[int] = field(default_factory=list)

    def extend(self, where: list[int], spent: float) -> None:
        """All that the first nodes at these places can become, if it may be better."""
        node = len(where)
        if node == len(self.weight):
            self.least, self.best = spent, where
            return
        seen = set()
        for place in range(self.places.count):
            # Free places of one leaf are alike.
            leaf = int(self.places.domains[0][place])
            if place in where or leaf in seen:
                continue
            seen.add(leaf)
            more = spent + float(self.weight[node, :node] @ self.distance[place, where])
            if more < self.least:
                self.extend([*where, place], more)
