"""The tree of topology domains over nodes in topology order.

A domain is its whole path: two racks of one name in two blocks are two. A node without the label of
a level is a domain of its own there and below: it is not a neighbour of another such node. Nodes
are sorted by path, so a domain is a range of nodes and the tree is a few arrays.

Levels on which every node is alone (a host name as the last level, or no labels) do not distinguish
choices; the tree ends above them, and they only count in ``spans``.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from railwright_scheduler.arrays import Ints, Mask
from railwright_scheduler.model.snapshot import UNKNOWN_DOMAIN, Node

_Step = tuple[bool, str, str]

PATHS_MAX = 16_384
"""Cached paths: most nodes share one with others. Nodes without labels have one each, and more of
them than this are computed each time."""


@dataclass(frozen=True, slots=True)
class Domains:
    """Level 0 is the whole cluster, level l > 0 the snapshot's level l-1.

    ``of_node[l]`` is the domain of each node. For the levels of the tree only, each with the number
    of all at its end: ``bounds[l]`` holds the first node of each domain, ``finest_bounds[l]`` the
    first finest domain in each, and ``inner_bounds[l]`` the first domain of the next level in each.
    """

    bounds: tuple[Ints, ...]
    finest_bounds: tuple[Ints, ...]
    inner_bounds: tuple[Ints, ...]
    of_node: Ints

    @property
    def finest(self) -> int:
        """The last level of the tree: 0 where no two nodes share anything but the cluster."""
        return len(self.bounds) - 1

    def total(self, amounts: Ints, level: int) -> Ints:
        """Sum a number per node over each domain of a level."""
        sums: Ints = np.add.reduceat(amounts, self.bounds[level][:-1])
        return sums

    def spans(self, nodes: Ints) -> tuple[int, ...]:
        """Count the domains that these nodes (ascending) use at each level, coarsest first."""
        domains = self.of_node.take(nodes, axis=1)
        changes = (domains[1:, 1:] != domains[1:, :-1]).sum(axis=1)
        return tuple((1 + changes).tolist())

    def nodes_in(self, domains: Ints, level: int) -> Mask:
        """The nodes in these domains of a level of the tree."""
        among = np.zeros(len(self.bounds[level]) - 1, dtype=np.bool_)
        among[domains] = True
        found: Mask = among[self.of_node[level]]
        return found


def in_topology_order(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """Sort so that the nodes of every domain are neighbours; nodes without a label come last."""
    return tuple(sorted(nodes, key=lambda node: (_path(node), node.name)))


def spans(nodes: Iterable[Node], levels: int) -> tuple[int, ...]:
    """The number of domains of these nodes at each level, coarsest first."""
    paths = [_path(node) for node in nodes]
    return tuple(len({path[:depth] for path in paths}) for depth in range(1, levels + 1))


def finest_level(nodes: Sequence[Node], levels: int) -> int:
    """The last level of the tree of these nodes, without the tree."""
    return sum(count < len(nodes) for count in spans(nodes, levels))


def in_one(nodes: Iterable[Node], level: int) -> bool:
    """Whether these nodes are in one domain of a level of the tree."""
    return len({_path(node)[:level] for node in nodes}) == 1


def largest_share(nodes: Iterable[Node], level: int) -> int:
    """The most of these nodes that are in one domain of a level of the tree."""
    return max(Counter(_path(node)[:level] for node in nodes).values())


def of(nodes: Sequence[Node], levels: int) -> Domains:
    """Build the tree over nodes in topology order, each with ``levels`` domains."""
    paths = [_path(node) for node in nodes]
    bounds: list[Ints] = []
    of_node: list[Ints] = []
    for depth in range(levels + 1):
        opens = np.array(
            [i == 0 or path[:depth] != paths[i - 1][:depth] for i, path in enumerate(paths)],
            dtype=np.bool_,
        )
        of_node.append((np.cumsum(opens) - 1).astype(np.int64))
        if depth == 0 or not opens.all():
            bounds.append(np.append(np.flatnonzero(opens), len(nodes)).astype(np.int64))
    finest = [np.searchsorted(bounds[-1], its) for its in bounds]
    inner = [np.searchsorted(below, its) for its, below in itertools.pairwise(bounds)]
    return Domains(tuple(bounds), tuple(finest), tuple(inner), np.array(of_node))


def places(owner: Ints) -> Ints:
    """The place of each element among those of the same owner; ``owner`` is ascending."""
    counts = np.bincount(owner)
    found: Ints = np.arange(len(owner)) - (counts.cumsum() - counts)[owner]
    return found


def _path(node: Node) -> tuple[_Step, ...]:
    return _path_of(node.domains, node.name if UNKNOWN_DOMAIN in node.domains else "")


@functools.lru_cache(PATHS_MAX)
def _path_of(domains: tuple[str, ...], name: str) -> tuple[_Step, ...]:
    """``name`` is that of the node if one of its domains is not known: it is alone there."""
    return tuple(
        (True, label, name) if label == UNKNOWN_DOMAIN else (False, label, "") for label in domains
    )
