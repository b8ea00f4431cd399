"""Select the pairs of nodes to measure, the most useful first.

Two domains within one domain of the next tier are measured against each other once: each smaller
one first with the largest that it may be part of. The tier at which the two nodes meet either joins
the domains or separates them; a single node descends to its domain like this. This is how a
hierarchy is built from chosen distances (Krishnamurthy, Balakrishnan, Xu, Singh, "Efficient active
algorithms for hierarchical clustering", ICML 2012). Cost: n times the domains that a node is
compared with on its way, some three to eight in practice.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from railwright_topology.probing.clustering import NONE, Clustering, Domain, Siblings
from railwright_topology.probing.readings import SAMPLES, SAMPLES_MAX, Bools, Ints, Pair


def undecided(clustering: Clustering) -> Iterator[Pair]:
    """Pairs that need another sample before they are used."""
    yield from again(clustering, np.flatnonzero(_open(clustering)))


def comparisons(clustering: Clustering, busy: set[int]) -> Iterator[Pair]:
    """New pairs between domains that may be one."""
    ends = clustering.readings.ends
    waiting = ends[:, _open(clustering)]
    for tier in reversed(range(clustering.tiers - 1)):
        its = clustering.siblings(tier)
        larger = its.next_larger(its.done)
        # Only separated domains are measured: of two that may be one, each would be.
        comparing = (larger != NONE) & (larger[larger] == NONE)
        comparing[its.labels[waiting]] = False
        free = _Free(clustering, its, busy)
        smaller_first = np.flatnonzero(comparing)
        for domain in smaller_first[np.argsort(its.sizes[smaller_first], kind="stable")].tolist():
            pair = free.pair(domain, int(larger[domain]))
            if pair is not None:
                yield pair


def proofs(clustering: Clustering) -> Iterator[Pair]:
    """Pairs to sample again: those between domains that few samples separate."""
    for tier in reversed(range(clustering.tiers - 1)):
        its = clustering.siblings(tier)
        few, n = its.apart & (its.samples < SAMPLES_MAX), len(its.labels)
        one, other = its.labels[clustering.readings.ends]
        found = np.isin(one * n + other, its.ones[few] * n + its.others[few])
        yield from again(clustering, np.flatnonzero(found))


def more_partners(clustering: Clustering, rank: Ints, least: int, busy: set[int]) -> Iterator[Pair]:
    """New pairs of nodes that were measured with fewer others than ``least``, if possible with each
    other; by ``rank``, which is as good as at random."""
    readings, there = clustering.readings, clustering.there
    measured = readings.ends[:, readings.times > 0]
    partners = np.bincount(measured.ravel(), minlength=len(there))
    order = np.lexsort((rank, partners))
    order = order[there[order]]
    for node in order[partners[order] < least].tolist():
        if node not in busy:
            others = (each for each in order.tolist() if each != node and each not in busy)
            pairs = ((min(node, other), max(node, other)) for other in others)
            new = next((pair for pair in pairs if pair not in readings.rows), None)
            if new is not None:
                yield new


class _Free:
    """The nodes of each domain that are in no pair of this round, the least measured first."""

    def __init__(self, clustering: Clustering, its: Siblings, busy: set[int]) -> None:
        self._clustering, self._its, self._busy = clustering, its, busy
        self._members: dict[Domain, list[int]] = {}

    def pair(self, one: Domain, other: Domain) -> Pair | None:
        """One of each that were not measured with each other yet."""
        rows = self._clustering.readings.rows
        others = self._of(other)
        for node in self._of(one) if others else ():
            for partner in others:
                pair = min(node, partner), max(node, partner)
                if pair not in rows:
                    return pair
        return None

    def _of(self, domain: Domain) -> list[int]:
        if domain not in self._members:
            nodes = np.flatnonzero((self._its.labels == domain) & self._clustering.there)
            load = self._clustering.readings.partners[nodes]
            self._members[domain] = nodes[np.argsort(load, kind="stable")].tolist()
        found = [node for node in self._members[domain] if node not in self._busy]
        self._members[domain] = found
        return found


def again(clustering: Clustering, rows: Ints) -> Iterator[Pair]:
    """Those of these pairs that do not have all samples yet."""
    for row in rows[~clustering.readings.sampled(SAMPLES_MAX)[rows]].tolist():
        one, other = clustering.readings.ends[:, row].tolist()
        yield one, other


def _open(clustering: Clustering) -> Bools:
    """Rows that need more samples."""
    one, other = clustering.labels[0][clustering.readings.ends]
    found: Bools = ~clustering.levels.settled & (
        (one != other) | ~clustering.readings.sampled(SAMPLES)
    )
    return found
