"""Choose the nodes of a gang with the largest sum of weights, within its constraints.

Problem: of the nodes that can take one pod each, choose as many as the gang has pods, so that their
first weights have the largest sum, of such choices the second weights, and so on. The number of
domains that they span does not count.

Idea: sort the nodes of each domain, the heaviest first. A spread keeps the first ones of each
domain; segments join each so many neighbours of that order to one unit, which has the sums of their
weights. The same is done with the units in the domains of the next coarser level that a constraint
is about. In each domain the units become lighter from the first to the last, so the first ones are
the best for any number of pods: the choice is exact. That takes one sort a level.
Source: the greedy algorithm on a laminar matroid; each size of segments divides the next one.
"""

from __future__ import annotations

import numpy as np

from railwright_scheduler.arrays import Ints, Mask
from railwright_scheduler.placement.constraints import LevelLimit, ResolvedConstraints
from railwright_scheduler.placement.domains import Domains, places


def heaviest(
    domains: Domains, eligible: Mask, weights: Ints, *, count: int, limits: ResolvedConstraints
) -> Ints:
    """Choose ``count`` eligible nodes; return their columns, ascending.

    ``weights`` has a row per kind of weight, the most significant first, and a column per node.
    There must be ``capacity`` for so many within the limits; ``limits.rather`` does not count. Of
    equal choices the first in topology order is taken.
    """
    units = np.flatnonzero(eligible)[:, np.newaxis]
    sums = weights[:, eligible]
    for level in _levels(domains, limits):
        # The pods of one domain of the level ``within`` are one unit.
        size, grain = units.shape[1], limits.grain(level) if level > limits.within else count
        most = min(
            each.pods for each in (LevelLimit(level, count), *limits.spreads) if each.level == level
        )
        owner = domains.of_node[level][units[:, 0]]
        order = np.lexsort((*-sums[::-1], owner))
        owner = owner[order]
        joined = grain // size
        held = np.minimum(np.bincount(owner), most // size) // joined * joined
        taken = order[places(owner) < held[owner]]
        units = units[taken].reshape(-1, grain)
        sums = sums[:, taken].reshape(len(sums), -1, joined).sum(axis=2)
    found: Ints = np.sort(units[np.lexsort(-sums[::-1])[0]])
    return found


def _levels(domains: Domains, limits: ResolvedConstraints) -> list[int]:
    """The levels of the tree that the constraints are about, the finest first."""
    levels = {limits.within, *(each.level for each in (*limits.segments, *limits.spreads))}
    return sorted(levels & {*range(limits.within, domains.finest + 1)}, reverse=True)
