"""Store what probes measured between pairs of nodes, as farness by metric.

Farness is the logarithm of the round-trip latency, and the negative logarithm of the bandwidth, so
that noise and tiers, which both multiply, add. A delay on a busy host only makes a pair appear
farther, so the nearest of two samples counts; more samples are taken in twos, of which the median
counts, so that pairs with more samples do not appear nearer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

SAMPLES = 2
SAMPLES_MAX = 3 * SAMPLES
TRIES = 3
"""After so many failed probes a pair is not probed again."""
METRICS = (0, 1)
"""Latency and bandwidth."""

Pair = tuple[int, int]
"""Two nodes by index, the smaller first."""
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Number = TypeVar("Number", np.float64, np.int64)

NOISE_UNKNOWN = 0.2
"""Assumed noise of one sample until enough pairs have two samples."""
NOISE_MIN = 0.03
TWICE_ENOUGH = 8


@dataclass(frozen=True, slots=True)
class Reading:
    """What one probe measured between two nodes; None if it failed."""

    latency_s: float | None = None
    bytes_per_s: float | None = None

    def farness(self) -> tuple[float, float]:
        """By metric; infinite where there is none."""
        return _logarithm(self.latency_s), -_logarithm(self.bytes_per_s, -math.inf)


class Readings:
    """All samples, in arrays with a row for each pair, in the order of first samples."""

    def __init__(self, nodes: int) -> None:
        self.rows: dict[Pair, int] = {}
        self.partners = np.zeros(nodes, dtype=np.int64)
        """Number of partners of each node, including failed pairs."""
        self._ends = np.zeros((2, 0), dtype=np.int64)
        self._samples = np.zeros((len(METRICS), SAMPLES_MAX, 0))
        self._times = np.zeros(0, dtype=np.int64)
        self._failures = np.zeros(0, dtype=np.int64)

    @property
    def ends(self) -> Ints:
        """The first nodes of all rows, and the second ones."""
        return self._ends[:, : len(self.rows)]

    @property
    def times(self) -> Ints:
        """Number of samples of each row."""
        return self._times[: len(self.rows)]

    @property
    def failed(self) -> Bools:
        """Rows without samples after TRIES failures."""
        found: Bools = (self._failures[: len(self.rows)] >= TRIES) & (self.times == 0)
        return found

    def add(self, pair: Pair, reading: Reading) -> None:
        """Add one sample of a pair."""
        row = self.rows.get(pair)
        if row is None:
            row = self._begin(pair)
        sample = reading.farness()
        if min(sample) == math.inf:
            self._failures[row] += 1
        elif self._times[row] < SAMPLES_MAX:
            self._samples[:, self._times[row], row] = sample
            self._times[row] += 1

    def each(self) -> Iterator[tuple[Pair, Reading]]:
        """All samples and failures of all pairs, as ``add`` takes them."""
        for pair, row in self.rows.items():
            for latency, bandwidth in self._samples[:, : self._times[row], row].T.tolist():
                yield pair, Reading(math.exp(latency), math.exp(-bandwidth))
            for _ in range(self._failures[row]):
                yield pair, Reading()

    def sampled(self, times: int) -> Bools:
        """The rows with so many samples, or that are not probed again."""
        found: Bools = (self.times >= times) | (self._failures[: len(self.rows)] >= TRIES)
        return found

    def farness(self) -> Floats:
        """By metric and row: the lower median of the nearest of each two samples; NaN without
        samples."""
        samples = self._samples[:, :, : len(self.rows)]
        nearest = np.sort(np.minimum(samples[:, 0::SAMPLES], samples[:, 1::SAMPLES]), axis=1)
        finite = np.isfinite(nearest).sum(axis=1, keepdims=True)
        middle = np.take_along_axis(nearest, np.maximum(finite - 1, 0) // 2, axis=1)[:, 0]
        return np.where(np.isfinite(middle), middle, np.nan)

    def noise(self, metric: int) -> float:
        """The standard deviation of one sample, from the differences of two samples of a pair:
        their median, which is robust to outliers, is 0.954 deviations."""
        first, second = self._samples[metric, :SAMPLES, : len(self.rows)]
        both = np.isfinite(first) & np.isfinite(second)
        if both.sum() < TWICE_ENOUGH:
            return NOISE_UNKNOWN
        return max(NOISE_MIN, float(np.median(np.abs(first[both] - second[both]))) / 0.954)

    def _begin(self, pair: Pair) -> int:
        row = len(self.rows)
        if row == len(self._times):
            more = row + 64
            self._ends = _longer(self._ends, more, 0)
            self._samples = _longer(self._samples, more, np.inf)
            self._times = _longer(self._times, more, 0)
            self._failures = _longer(self._failures, more, 0)
        self.rows[pair] = row
        self._ends[:, row] = pair
        self.partners[list(pair)] += 1
        return row


def _longer(array: NDArray[Number], more: int, fill: float) -> NDArray[Number]:
    added = np.full((*array.shape[:-1], more), fill, dtype=array.dtype)
    return np.concatenate([array, added], axis=-1)


def _logarithm(value: float | None, unknown: float = math.inf) -> float:
    return math.log(value) if value is not None and 0 < value < math.inf else unknown


def linked(nodes: int, ends: Ints) -> Ints:
    """For each node the first node that these pairs link it with."""
    labels = np.arange(nodes)
    while True:
        found = labels.copy()
        groups = labels[ends]
        lower = groups.min(axis=0)
        for group in groups:
            # The first of its group takes the lower one too, so that whole groups move at once.
            np.minimum.at(found, group, lower)
        found = found[found]
        if (found == labels).all():
            return labels
        labels = found
