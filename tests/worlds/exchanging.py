"""Jobs and places for the mapping: grids that exchange as trainings do, on trees of any shape."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from railwright_scheduler.mapping import orders
from railwright_scheduler.mapping.problem import Exchanges, Indices, Places, cost

TENSOR, DATA, PIPELINE = 1000, 100, 20
"""Relative weights; a node of 8 keeps the first to itself."""


def job(
    shape: tuple[int, int, int], weights: Sequence[float] = (TENSOR, DATA, PIPELINE)
) -> Exchanges:
    """Tensor parallel cliques, data parallel rings and pipelines, the fastest axis first."""
    tensor, data, pipeline = shape
    ranks = np.arange(int(np.prod(shape))).reshape(pipeline, data, tensor)
    pairs: dict[tuple[int, int], float] = {}

    def joined(one: Indices, other: Indices, weight: float) -> None:
        for a, b in zip(one.ravel().tolist(), other.ravel().tolist(), strict=True):
            if a != b:
                key = min(a, b), max(a, b)
                pairs[key] = pairs.get(key, 0.0) + weight

    for one, other in itertools.combinations(range(tensor), 2):
        joined(ranks[:, :, one], ranks[:, :, other], weights[0] / tensor)
    for at in range(data if data > 2 else data - 1):
        joined(ranks[:, at], ranks[:, (at + 1) % data], weights[1])
    for stage in range(pipeline - 1):
        joined(ranks[stage], ranks[stage + 1], weights[2])
    a, b = np.array([*pairs], dtype=np.int64).reshape(-1, 2).T
    return Exchanges(shape, a, b, np.array([*pairs.values()]))


def places(pods: Sequence[Sequence[int]], distance: Sequence[float]) -> Places:
    """Places in domains of these sizes, and those in further ones."""
    near = [at for at, size in enumerate(itertools.chain(*pods)) for _ in range(size)]
    far = [at for at, sizes in enumerate(pods) for _ in range(sum(sizes))]
    return Places(np.array([near, far]), tuple(distance))


def nodes_of(pods: Sequence[Sequence[int]], devices: int, distance: Sequence[float]) -> Places:
    """The same of nodes, each of so many places."""
    nodes = places(pods, distance[1:])
    node = np.repeat(np.arange(nodes.count), devices)
    return Places(np.vstack([node, nodes.domains[:, node]]), tuple(distance))


def renamed(given: Places, *, seed: int) -> tuple[Places, Indices]:
    """The same places in another order with other names of domains, and which each one is."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(given.count)
    domains = [rng.permutation(int(names.max()) + 1)[names][order] for names in given.domains]
    return Places(np.array(domains), given.distance), order


def sizes_in(given: Places, line: Indices) -> list[int]:
    """How many places of each nearest domain come one after the other."""
    return [len([*run]) for _, run in itertools.groupby(given.domains[0][line].tolist())]


def best_boxed(exchanges: Exchanges, given: Places) -> float:
    """The least cost of all ways to fill every domain with boxes of the grid."""
    line = np.lexsort(given.domains)
    found = []
    for nested in orders.nested(exchanges.shape, given):
        where = np.empty(exchanges.ranks, dtype=np.int64)
        where[orders.boxed(exchanges.shape, nested)] = line
        found.append(cost(exchanges, given, where))
    return min(found)
