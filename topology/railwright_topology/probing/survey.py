"""Select rounds of pairs to measure until all nodes are placed or the budget is spent.

A survey opens no connection: it returns a round of pairs, records what probes measured, and returns
the next. Domains are derived from all samples each time; nothing but the samples is stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import Random

import numpy as np

from railwright_topology.probing import clustering, pair_selection, scales
from railwright_topology.probing.clustering import Clustering
from railwright_topology.probing.readings import (
    METRICS,
    SAMPLES_MAX,
    Bools,
    Pair,
    Reading,
    Readings,
)

PART = 0.2
"""Of all pairs so many may be measured;"""
PAIRS = 99
"""of few nodes as many as of 32."""
VAIN = 3
"""A node with so many failed partners, and no successful one, is absent."""
VAIN_MAX = 8
"""A node with so many failed partners is left out in any case."""
FEW_NODES = 32
SEARCH = 3
"""If all nodes seem to be in one domain, each is measured with so many others for confirmation."""
NEWS = 0.05
"""The scales are computed again after so many new samples, as a share of the old ones."""
SLOW_PART = 8
"""At most one of so many nodes is slow by itself; if more are far, that is the topology."""


class Survey:
    """``at_once`` bounds the probes of a round, ``pairs_max`` the different pairs in all; each is
    sampled six times at most."""

    def __init__(
        self,
        nodes: Sequence[str],
        *,
        seed: int = 0,
        at_once: int = 32,
        pairs_max: int | None = None,
    ) -> None:
        self.nodes = tuple(nodes)
        total = len(nodes) * (len(nodes) - 1) // 2
        self.pairs_max = min(total, max(PAIRS, int(PART * total)))
        if pairs_max is not None:
            self.pairs_max = min(total, pairs_max)
        self.readings = Readings(len(nodes))
        self.lost: dict[int, str] = {}
        self.muted = np.zeros((len(METRICS), len(nodes)), dtype=bool)
        """Metrics of nodes that are hidden by the node's own slowness."""
        self._at_once = at_once
        order = list(range(len(nodes)))
        Random(seed).shuffle(order)  # noqa: S311
        self._rank = np.array(order, dtype=np.int64)
        self._partners_least = 1
        self._round: tuple[Pair, ...] = ()
        self._blurred = np.zeros(0, dtype=np.int64)
        self._read = self._unread = 0
        self._read_anew()

    @property
    def pairs(self) -> int:
        """How many different ones were measured so far."""
        return len(self.readings.rows)

    def next_round(self) -> tuple[tuple[str, str], ...]:
        """Pairs to measure now, at the same time: no node is in two. None when it is over."""
        while True:
            self._round = tuple(self._pick())
            if self._round or not self._settle():
                return tuple((self.nodes[one], self.nodes[other]) for one, other in self._round)

    def record(self, results: Mapping[tuple[str, str], Reading]) -> None:
        """Record the round's readings; a missing pair failed."""
        for pair in self._round:
            named = self.nodes[pair[0]], self.nodes[pair[1]]
            self.readings.add(pair, results.get(named, Reading()))
            self._unread += 1
        self._round = ()
        if self._drop_unreachable(VAIN) or self._unread > NEWS * self._read:
            self._read_anew()
        else:
            self._place()

    def resume(self, samples: Iterable[tuple[tuple[str, str], Reading]]) -> None:
        """Record samples of an earlier process; those of other nodes are ignored."""
        index = {node: at for at, node in enumerate(self.nodes)}
        for pair, reading in samples:
            if index.keys() >= {*pair}:
                one, other = sorted(index[node] for node in pair)
                self.readings.add((one, other), reading)
                self._unread += 1
        self._read_anew()

    def leave_out(self, node: str, why: str) -> None:
        """Stop measuring a node; it is reported as lost."""
        self.lost.setdefault(self.nodes.index(node), why)

    def _read_anew(self) -> None:
        """Compute the scales again from all samples."""
        self._read, self._unread = self._read + self._unread, 0
        farness = clustering.unmuted(self.readings, self.muted)
        noises = [self.readings.noise(metric) for metric in METRICS]
        self.ladder = scales.ladder(farness, noises, self.readings.ends)
        self._place()

    def _place(self) -> None:
        there = ~(self.muted[0] & self.muted[1])
        there[list(self.lost)] = False
        self.clustering: Clustering = clustering.of(self.readings, self.ladder, self.muted, there)

    def _pick(self) -> Iterator[Pair]:
        """Disjoint pairs, as many as may run at once."""
        busy: set[int] = set()
        pairs_left, left = self.pairs_max - self.pairs, self._at_once
        for pair in self._candidates(busy):
            new = pair not in self.readings.rows
            if busy.isdisjoint(pair) and (pairs_left or not new):
                pairs_left, left = pairs_left - new, left - 1
                busy.update(pair)
                yield pair
            if left < 1:
                return

    def _candidates(self, busy: set[int]) -> Iterator[Pair]:
        now = self.clustering
        yield from pair_selection.undecided(now)
        if self.pairs < self.pairs_max:
            yield from pair_selection.more_partners(now, self._rank, 1, busy)
            yield from pair_selection.comparisons(now, busy)
        if not busy:
            yield from pair_selection.proofs(now)
        if not busy and self.pairs < self.pairs_max:
            yield from pair_selection.more_partners(now, self._rank, self._partners_least, busy)
        if not busy:
            yield from pair_selection.again(now, self._blurred)

    def _drop_unreachable(self, least: int) -> bool:
        """Leave out nodes that no probe, or hardly any, could reach."""
        before = len(self.lost)
        failed, ends = self.readings.failed, self.readings.ends
        vain = np.bincount(ends[:, failed].ravel(), minlength=len(self.nodes))
        answered = np.bincount(ends[:, self.readings.times > 0].ravel(), minlength=len(self.nodes))
        for node in np.flatnonzero((vain >= least) & (vain > 0)).tolist():
            if not answered[node]:
                self.lost[node] = "no probe of it succeeded"
            elif vain[node] >= VAIN_MAX:
                self.lost[node] = f"probes of it failed with {vain[node]} others"
        return len(self.lost) > before

    def _settle(self) -> bool:
        """When no pair is left: compute the scales again, find slow nodes, and require more pairs
        per node where a tier may be missing. Return whether there may be more pairs."""
        if self._drop_unreachable(1) or self._unread:
            self._read_anew()
            return True
        blurred = self.ladder.blurred(self.clustering.farness) & ~self.readings.sampled(SAMPLES_MAX)
        self._blurred = np.flatnonzero(blurred)
        if len(self._blurred):
            return True
        muted = self.muted | self._slow()
        if (muted != self.muted).any():
            self.muted = muted
            self._read_anew()
            return True
        most = SEARCH if self.clustering.tiers == 1 else 1
        if len(self.nodes) < FEW_NODES:
            most = len(self.nodes)
        if self._partners_least < most and self.pairs < self.pairs_max:
            self._partners_least += 1
            return True
        return False

    def _slow(self) -> Bools:
        """Nodes, by metric, whose own slowness makes a step without other nodes."""
        found = np.zeros_like(self.muted)
        for metric, scale in enumerate(self.ladder.scales):
            answered = ~np.isnan(self.clustering.farness[metric])
            steps = scale.steps(self.clustering.farness[metric, answered])
            one, other = self.readings.ends[:, answered]
            nearest = np.full(len(self.nodes), len(scale.cuts) + 1)
            np.minimum.at(nearest, one, steps)
            np.minimum.at(nearest, other, steps)
            for step in range(1, len(scale.cuts) + 1):
                alone, its = nearest == step, steps == step
                touched = (alone[one] | alone[other])[its]
                if touched.all() and 0 < alone.sum() <= max(1, len(self.nodes) // SLOW_PART):
                    found[metric, alone] = True
        return found
