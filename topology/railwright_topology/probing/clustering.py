"""Cluster the nodes by all measurements: domains, and which of them are separated.

Errors make two nodes appear farther apart, never nearer. So nodes are in one domain if a chain of
near pairs links them, and a domain that was split by an error is joined again by the next pair
that is measured between its halves. `survey` calls it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from railwright_topology.probing.readings import TRIES, Bools, Floats, Ints, Readings, linked
from railwright_topology.probing.scales import Ladder, Levels

Domain = int
"""A domain is identified by the index of its first node."""
NONE = -1


@dataclass(frozen=True, slots=True)
class Siblings:
    """The domains of one tier, in families: those that lie in one domain of the next tier.

    ``labels`` says which domain each node is in. By domain, ``sizes`` has its number of nodes,
    ``rank`` how many larger ones are before it in its family, and ``starts`` where that begins in
    ``order``, which has all of them. The last four are of each two of a family that were measured
    against each other, in both orders: by how many pairs, and how many samples separate them.
    """

    labels: Ints
    sizes: Ints
    rank: Ints
    starts: Ints
    order: Ints
    ones: Ints
    others: Ints
    pairs: Ints
    samples: Ints

    @property
    def apart(self) -> Bools:
        """Of each two whether they are separated."""
        found: Bools = self.samples > 0
        return found

    @property
    def done(self) -> Bools:
        """Of each two whether they are separated, or are not measured again as that had no
        result."""
        most = np.minimum(TRIES, self.sizes[self.ones] * self.sizes[self.others])
        found: Bools = self.apart | (self.pairs >= most)
        return found

    def next_larger(self, done: Bools) -> Ints:
        """By domain: the largest before it in its family that is not in ``done``, or NONE."""
        ones, ranks = self.ones[done], self.rank[self.others[done]]
        in_order = np.lexsort((ranks, ones))
        ones, ranks = ones[in_order], ranks[in_order]
        times = np.bincount(ones, minlength=len(self.labels))
        places = np.arange(len(ones)) - np.searchsorted(ones, ones)
        # The first rank that is missing in ``done``.
        missing = times.copy()
        np.minimum.at(missing, ones, np.where(ranks == places, len(self.labels), places))
        found = np.full(len(self.labels), NONE)
        pending = np.flatnonzero((self.sizes > 0) & (missing < self.rank))
        found[pending] = self.order[self.starts[pending] + missing[pending]]
        return found


@dataclass(frozen=True, slots=True)
class Clustering:
    """``labels[tier, node]`` is the domain of a node, the nearest tier first; at the last one all
    are in one."""

    readings: Readings
    there: Bools
    farness: Floats
    levels: Levels
    labels: Ints

    @property
    def tiers(self) -> int:
        """How many there are."""
        return len(self.labels)

    def siblings(self, tier: int) -> Siblings:
        """Of any tier but the last."""
        labels, ends = self.labels[tier], self.readings.ends
        parents = self.labels[tier + 1]
        domains, counts = np.unique(labels[self.there], return_counts=True)
        sizes, rank, starts = np.zeros((3, len(labels)), dtype=np.int64)
        sizes[domains] = counts
        order = domains[np.lexsort((domains, -counts, parents[domains]))]
        starts[order] = np.searchsorted(parents[order], parents[order])
        rank[order] = np.arange(len(order)) - starts[order]
        one, other = labels[ends]
        rows = self.there[ends[0]] & self.there[ends[1]]
        rows &= (one != other) & (parents[one] == parents[other])
        one, other = one[rows], other[rows]
        far = self.levels.measured & (self.levels.low > tier)
        samples = np.tile(np.where(far, self.readings.times, 0)[rows], 2)
        codes, at = np.unique(
            np.concatenate([one * len(labels) + other, other * len(labels) + one]),
            return_inverse=True,
        )
        return Siblings(
            labels,
            sizes,
            rank,
            starts,
            order,
            codes // len(labels),
            codes % len(labels),
            np.bincount(at, minlength=len(codes)),
            np.bincount(at, weights=samples, minlength=len(codes)).astype(np.int64),
        )

    def placed(self, tier: int) -> Bools:
        """Nodes whose domain at a tier is known: those with other nodes in it, and those that are
        separated from all others."""
        decides = (self.levels.high <= tier) | (self.levels.low > tier)
        reached = self.readings.ends[:, self.levels.measured & decides]
        found = self.there.copy()
        if len(found) > 1:
            found &= np.bincount(reached.ravel(), minlength=len(found)) > 0
        if tier < self.tiers - 1:
            its = self.siblings(tier)
            found[(its.sizes == 1) & (its.next_larger(its.apart) != NONE)] = False
        return found


def of(readings: Readings, ladder: Ladder, muted: Bools, there: Bools) -> Clustering:
    """Cluster by all samples, without metrics that a node's own slowness hides (``muted``, by
    metric and node)."""
    farness = unmuted(readings, muted)
    levels = ladder.levels(readings, farness)
    labels = np.zeros((len(ladder.chain), len(there)), dtype=np.int64)
    for tier in range(len(labels) - 1):
        labels[tier] = linked(len(there), readings.ends[:, levels.measured & (levels.high <= tier)])
    return Clustering(readings, there, farness, levels, labels)


def unmuted(readings: Readings, muted: Bools) -> Floats:
    """The farness by metric and row, without muted nodes."""
    farness = readings.farness()
    one, other = readings.ends
    farness[muted[:, one] | muted[:, other]] = np.nan
    return farness
