"""Where the ranks of a group are: how many nodes, how many on each."""

from __future__ import annotations

import functools

import numpy as np

from railwright_scheduler.communication import grid
from railwright_scheduler.communication.graph import Communicator
from railwright_scheduler.communication.grid import Axis, Grid
from railwright_scheduler.cost.collectives import Group
from railwright_scheduler.cost.hardware import Machine
from railwright_scheduler.mapping.problem import Indices

REMEMBERED = 64
"""Grids whose shapes are kept: a step is predicted again for every order of the same nodes."""


def groups(communicator: Communicator, machine: Machine) -> tuple[Group, ...]:
    """The different shapes of a communicator's groups, for ranks that fill one machine after the
    other. Of an uneven group the fullest node counts, whose ranks share least."""
    shapes = _shapes(communicator.grid, communicator.axes, machine.devices)
    return tuple(Group.of(machine, count, ranks) for count, ranks in shapes)


@functools.lru_cache(maxsize=REMEMBERED)
def _shapes(ranks: Grid, axes: tuple[Axis, ...], devices: int) -> tuple[tuple[int, int], ...]:
    nodes = np.sort(ranks.groups(*axes) // devices, axis=1)
    rows, _ = grid.unlike(nodes - nodes[:, :1])
    return tuple(sorted({*map(tuple, shapes(rows).tolist())}))


def shapes(rows: Indices) -> Indices:
    """For each group, which has the nodes of its ranks in a row, ascending: how many nodes it is
    on, and how many ranks are on the fullest of them."""
    row, at = np.nonzero(np.diff(rows, axis=1, prepend=-1))
    counts = np.diff(np.append(row * rows.shape[1] + at, rows.size))
    nodes = np.bincount(row, minlength=len(rows))
    fullest = np.maximum.reduceat(counts, np.cumsum(nodes) - nodes)
    return np.column_stack([nodes, fullest])
