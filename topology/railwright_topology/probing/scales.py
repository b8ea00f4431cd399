"""Which farnesses are of one tier, and at which tier the two nodes of a pair meet.

Each metric is cut where few pairs lie between many: at the valleys of a kernel density estimate
(Silverman, "Density estimation for statistics and data analysis", 1986) as wide as the noise. Then
both are read together, as latency tells some tiers apart and bandwidth others: the steps from near
to far are a chain, and no step is nearer than the one before in either metric.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from railwright_topology.probing.readings import (
    METRICS,
    SAMPLES,
    SAMPLES_MAX,
    Bools,
    Floats,
    Ints,
    Readings,
    linked,
)

Step = tuple[int, int]
"""One of latency and one of bandwidth."""

WIDTHS = 3.5
"""So many of their own widths must two steps be apart: half of one are 2.3."""
NEAREST = 0.826
"""The deviation of the nearest of two looks, in those of one look."""
APART = 2.6
"""So many deviations of one look must the middles of two steps be apart, and"""
RATIO = float(np.log(1.35))
"""at least this; what differs less is no reason to place a job otherwise."""
VALLEY = 0.5
"""The density between two steps must fall below this part of the lower one's peak."""
FEW = 3
FEW_PART = 0.01
"""With fewer pairs than this, or than this part of all, a step may be the tail of the noise, whose
farthest of n values is expected at the root of 2 ln n deviations: it must be that far, and"""
BEYOND = 1.0
"""so many deviations more."""
TAIL_PART = 0.002
"""With fewer than this part, or only one that is far, it is none."""
STRAY_PART = 0.1
"""Steps of the chain with fewer pairs than this part of either beside them are misread pairs."""
CONTRARY_PART = 0.05
"""So many pairs may be on no step of the chain; with more, a cut goes without which no more than"""
CONTRARY_LEFT = 0.5
"""this part of them is."""
WIDE = 1.25
"""A step's half width, as a deviation, that is so many times the noise of one look."""
SLOW = float(np.log(1.5))
"""A node is slow that is at least so much farther from the nearest than others are."""
MARGIN = 1.5
"""Within so many deviations of a cut a pair may be of either side;"""
MARGIN_FULL = 0.8
"""after all its looks within so many."""


@dataclass(frozen=True, slots=True)
class Scale:
    """One metric's cuts between steps, and its noise."""

    cuts: tuple[float, ...]
    noise: float

    @property
    def slow(self) -> float:
        """How much farther than others a node must be for that to be no noise."""
        return max(SLOW, APART * self.noise)

    def steps(self, values: Floats) -> Ints:
        """The step of each farness, the nearest 0."""
        return np.searchsorted(np.array(self.cuts), values).astype(np.int64)

    def blurred(self, values: Floats) -> Bools:
        """Whether more looks may show that each is of another step: it is in one that is wider than
        noise makes it, and so may be two; in one that is far and of few pairs, and so may be
        hiccups; or so far within its step that its nodes would be called slow."""
        steps = self.steps(values)
        data = ~np.isnan(values)
        found = np.zeros(len(values), dtype=bool)
        for step in range(len(self.cuts) + 1):
            its = (steps == step) & data
            if its.any():
                low, middle, high = np.percentile(values[its], (5, 50, 95))
                wide = max(high - middle, middle - low) / 1.645 > WIDE * self.noise
                few = step > 0 and its.sum() <= FEW
                found |= its & (wide | few | (values - middle > self.slow))
        return found


Scales = tuple[Scale, Scale]
"""Of latency and of bandwidth."""


@dataclass(frozen=True, slots=True)
class Levels:
    """Of each row the nearest and the farthest step of the chain at which its nodes may meet, 0 the
    nearest. ``settled`` are those that were looked at enough for that, and ``measured`` those of
    them that any metric has a value of."""

    low: Ints
    high: Ints
    settled: Bools
    measured: Bools

    def at(self, *steps: int) -> Bools:
        """Rows that are known to meet at one of these."""
        found: Bools = self.measured & (self.low == self.high) & np.isin(self.low, steps)
        return found


@dataclass(frozen=True, slots=True)
class Ladder:
    """The chain of steps, and the scales they are read on."""

    scales: Scales
    chain: tuple[Step, ...]

    def levels(self, readings: Readings, farness: Floats) -> Levels:
        """Where on the chain the two nodes of each row may meet.

        Each metric leaves those steps that noise may hide. Where both together leave none, more
        noise is allowed for, and if that leaves none either the nearer metric is believed, as
        whatever errs makes a pair far; but only after all looks.
        """
        full = readings.sampled(SAMPLES_MAX)
        close = self._both(farness, np.where(full, MARGIN_FULL, MARGIN))
        contrary = ~(close[0] & close[1]).any(axis=0)
        left = np.where(contrary, self._both(farness, np.full(len(full), MARGIN)), close)
        both = left[0] & left[1]
        contrary = ~both.any(axis=0)
        last = len(self.chain) - 1
        farthest = (last - left[:, ::-1].argmax(axis=1)).min(axis=0)
        low = np.where(contrary, farthest, both.argmax(axis=0))
        high = np.where(contrary, farthest, last - both[::-1].argmax(axis=0))
        settled = full | (readings.sampled(SAMPLES) & (low == high) & ~contrary)
        return Levels(low, high, settled, settled & ~np.isnan(farness).all(axis=0))

    def blurred(self, farness: Floats) -> Bools:
        """Rows that full looks may show to be of another step than they seem to be of."""
        found = [scale.blurred(farness[metric]) for metric, scale in enumerate(self.scales)]
        return found[0] | found[1]

    def _both(self, farness: Floats, margins: Floats) -> Bools:
        return np.stack([self._left(farness[metric], margins, metric) for metric in METRICS])

    def _left(self, values: Floats, margins: Floats, metric: int) -> Bools:
        """The steps of the chain that a metric leaves of each row."""
        scale = self.scales[metric]
        steps = np.array(self.chain)[:, metric, None]
        low = scale.steps(values - margins * scale.noise)
        high = scale.steps(values + margins * scale.noise)
        off = np.maximum(np.maximum(low - steps, steps - high), 0)
        left: Bools = (off == off.min(axis=0)) | np.isnan(values)
        return left


def ladder(farness: Floats, noises: Sequence[float], ends: Ints) -> Ladder:
    """Read it out of all pairs measured so far; ``ends`` are their first nodes and their second."""
    scales = _scale(farness[0], noises[0]), _scale(farness[1], noises[1])
    while (fewer := _without_contrary(farness, noises, scales, ends)) is not None:
        scales = fewer
    return Ladder(scales, _chain(_steps(farness, scales)))


def _steps(farness: Floats, scales: Scales) -> Ints:
    """Of each pair that both metrics tell of, its step in both."""
    # A metric that makes no difference need not have been measured.
    data = [~np.isnan(farness[metric]) | (not scales[metric].cuts) for metric in METRICS]
    complete = farness[:, data[0] & data[1]]
    steps = [scale.steps(complete[at]) * bool(scale.cuts) for at, scale in enumerate(scales)]
    return np.stack(steps, axis=1)


def _without_contrary(
    farness: Floats, noises: Sequence[float], scales: Scales, ends: Ints
) -> Scales | None:
    """Where many pairs are on no step of the chain, one metric's cut has nothing to do with where
    nodes stand: such as between hosts that sleep and hosts that are awake. Of the cuts without
    which far fewer are contrary the one goes that chains of near pairs lead across the most. None
    where no cut does."""
    contrary = _contrary(_steps(farness, scales))
    if contrary <= max(FEW, CONTRARY_PART * farness.shape[1]):
        return None
    found: list[tuple[float, Scales]] = []
    for metric in METRICS:
        cuts = scales[metric].cuts
        for at, cut in enumerate(cuts):
            fewer = _wide(finite(farness[metric]), cuts[:at] + cuts[at + 1 :], noises[metric])
            others = (scales[0], fewer) if metric else (fewer, scales[1])
            if _contrary(_steps(farness, others)) <= contrary * CONTRARY_LEFT:
                found.append((_crossed(farness[metric], cut, ends), others))
    return max(found, key=lambda each: each[0])[1] if found else None


def _crossed(values: Floats, cut: float, ends: Ints) -> float:
    """The part of the pairs beyond a cut whose nodes hang together by pairs on this side of it."""
    far = values > cut
    labels = linked(int(ends.max()) + 1, ends[:, values <= cut])
    one, other = labels[ends[:, far]]
    return float((one == other).mean()) if far.any() else 1.0


def _contrary(steps: Ints) -> int:
    """How many pairs are on no step of the chain."""
    chain = _chain(steps)
    return sum(tuple(step) not in chain for step in steps.tolist())


def _scale(values: Floats, noise: float) -> Scale:
    data = finite(values)
    return _wide(data, _cuts(data, noise) if len(data) > 2 else (), noise)


def finite(values: Floats) -> Floats:
    """Those that are numbers, in order."""
    return np.sort(values[~np.isnan(values)])


def _wide(data: Floats, cuts: tuple[float, ...], noise: float) -> Scale:
    """With the noise that its steps show: pairs of one tier differ by more than looks at one."""
    if len(data) <= 2:
        return Scale(cuts, noise)
    steps = np.split(data, np.searchsorted(data, cuts))
    width = _width(np.concatenate([step - np.median(step) for step in steps if len(step)]))
    return Scale(cuts, max(noise, width / NEAREST))


def _cuts(data: Floats, noise: float) -> tuple[float, ...]:
    width = noise / 2
    edges = np.arange(data[0] - 4 * width, data[-1] + 5 * width, width / 4)
    counts, _ = np.histogram(data, edges)
    kernel = np.exp(-0.5 * (np.arange(-16, 17) / 4) ** 2)
    density = np.convolve(counts, kernel, mode="same")
    middles = (edges[:-1] + edges[1:]) / 2
    rising = np.diff(density) > 0
    valleys = [int(at) + 1 for at in np.flatnonzero(~rising[:-1] & rising[1:])]
    while valleys:
        bounds = [0, *valleys, len(density)]
        sides = [
            _apart(data, density, middles, bounds[at : at + 3], noise) for at in range(len(valleys))
        ]
        faulty = [(apart, at) for at, (apart, clear) in enumerate(sides) if not clear]
        if not faulty:
            break
        # The closest are joined first, so that each value comes to those that it is most like.
        del valleys[min(faulty)[1]]
    return tuple(float(_middle(density, middles, at)) for at in valleys)


def _width(values: Floats) -> float:
    """The standard deviation, as it would be without hiccups."""
    return 1.4826 * float(np.median(np.abs(values - np.median(values))))


def _middle(density: Floats, middles: Floats, valley: int) -> float:
    """The middle of where the density is as low as at the valley."""
    low = high = valley
    level = density[valley] * 1.001 + 1e-9
    while low > 0 and density[low - 1] <= level:
        low -= 1
    while high + 1 < len(density) and density[high + 1] <= level:
        high += 1
    return float(middles[low] + middles[high]) / 2


def _apart(
    data: Floats, density: Floats, middles: Floats, bounds: Sequence[int], noise: float
) -> tuple[float, bool]:
    """How far apart two steps are, and whether the cut between them is clear."""
    low, cut, high = bounds
    below = data[(data >= middles[low]) & (data < middles[cut])]
    above = data[(data >= middles[cut]) & (data <= middles[high - 1])]
    fewer = min(len(below), len(above))
    if not fewer:
        return 0.0, False
    apart = float(np.median(above) - np.median(below))
    peak = min(density[low:cut].max(), density[cut:high].max())
    few = fewer < max(FEW, FEW_PART * len(data))
    wide = math.hypot(_width(below), _width(above)) / math.sqrt(2)
    tail = NEAREST * (math.sqrt(2 * math.log(len(data))) + BEYOND)
    needed = max(RATIO, (max(APART, tail) if few else APART) * noise, WIDTHS * wide)
    enough = fewer >= TAIL_PART * len(data) and len(above) > 1
    return apart, bool(enough and density[cut] < VALLEY * peak and apart > needed)


def _chain(steps: Ints) -> tuple[Step, ...]:
    """The most frequent steps that are in order in both metrics, without stray ones between."""
    counts = Counter[Step]((latency, bandwidth) for latency, bandwidth in steps.tolist())
    chain: list[Step] = []
    for step in sorted(counts, key=lambda step: (-counts[step], step)):
        if all(_ordered(step, other) for other in chain):
            chain.append(step)
    chain.sort()
    while strays := [
        step
        for before, step, after in zip(chain, chain[1:], chain[2:], strict=False)
        if counts[step] < STRAY_PART * min(counts[before], counts[after])
    ]:
        chain.remove(min(strays, key=lambda step: (counts[step], step)))
    return tuple(chain) or ((0, 0),)


def _ordered(one: Step, other: Step) -> bool:
    low, high = sorted((one, other))
    return low[1] <= high[1]
