"""A mixed integer program that gives each group of nodes as few leaves as it can.

Written after the description of Arnold (arXiv 2509.15940, 2025), which aligns data or pipeline
parallel groups with the network's domains so that their spread is least; its code is not public. A
variable says how many of a group's nodes a leaf takes, another one whether it takes any; what is
minimised is the widest spread first, and then all of them together. Groups are the lines of nodes
along one axis of their grid, or the planes along several; each choice of axes is tried.
"""

from __future__ import annotations

import itertools
import math

import highspy
import numpy as np

from railwright_scheduler.arrays import Ints
from railwright_scheduler.communication.traffic_matrix import TrafficMatrix
from railwright_scheduler.mapping.problem import Places

DEADLINE_S = 60.0
"""For all choices of axes together."""

LEAVES_MAX = 50


def mapped(
    exchanges: TrafficMatrix, places: Places, *, deadline_s: float = DEADLINE_S
) -> list[Ints]:
    """The place of each node, for each choice of axes that can be kept together."""
    sizes = np.bincount(places.domains[0])
    if len(sizes) > LEAVES_MAX:
        return []
    nodes = np.arange(exchanges.ranks).reshape(exchanges.shape[::-1])
    wide = [axis for axis, size in enumerate(nodes.shape) if size > 1]
    choices = [
        axes for count in range(1, len(wide)) for axes in itertools.combinations(wide, count)
    ]
    found = []
    for axes in choices:
        size = math.prod(nodes.shape[axis] for axis in axes)
        groups = np.moveaxis(nodes, axes, range(-len(axes), 0)).reshape(-1, size)
        shares = _shares(len(groups), size, sizes, deadline_s=deadline_s / len(choices))
        found.append(_laid(groups, shares, places))
    return found


def _shares(groups: int, size: int, capacities: Ints, *, deadline_s: float) -> Ints:
    """How many nodes of each group each leaf takes."""
    model = highspy.Highs()
    model.silent()
    model.setOptionValue("time_limit", deadline_s)
    model.setOptionValue("threads", 1)
    pairs = [(group, leaf) for group in range(groups) for leaf in range(len(capacities))]
    share = {
        (group, leaf): model.addIntegral(lb=0, ub=float(min(size, capacities[leaf])))
        for group, leaf in pairs
    }
    touches = {pair: model.addBinary() for pair in pairs}
    widest = model.addVariable(lb=0)
    for group, leaf in pairs:
        most = float(min(size, capacities[leaf]))
        model.addConstr(share[group, leaf] <= most * touches[group, leaf])
    for group in range(groups):
        leaves = range(len(capacities))
        model.addConstr(model.qsum(share[group, leaf] for leaf in leaves) == size)
        model.addConstr(model.qsum(touches[group, leaf] for leaf in leaves) <= widest)
    for leaf, free in enumerate(capacities.tolist()):
        model.addConstr(model.qsum(share[group, leaf] for group in range(groups)) == free)
    model.minimize(widest * float(len(pairs)) + model.qsum(touches.values()))
    found = [round(model.val(share[pair])) for pair in pairs]
    return np.array(found).reshape(groups, len(capacities))


def _laid(groups: Ints, shares: Ints, places: Places) -> Ints:
    """Each group's nodes in their order over the leaves that it has, in theirs."""
    free = [np.flatnonzero(places.domains[0] == leaf).tolist() for leaf in range(shares.shape[1])]
    where = np.empty(groups.size, dtype=np.int64)
    for group, its in zip(groups, shares, strict=True):
        taken = [free[leaf].pop(0) for leaf, count in enumerate(its) for _ in range(count)]
        where[group] = taken
    return where
