"""Seeded random numbers as arrays: equal in every process and version of numpy.

A random search needs numbers without a pattern, and a repeatable decision needs the same ones each
time. These are SplitMix64's (Steele, Lea and Flood 2014), whose only state is the count of numbers
drawn.
"""

from __future__ import annotations

import math

import numpy as np

from railwright_scheduler.arrays import Floats, Ints

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX_ONE = np.uint64(0xBF58476D1CE4E5B9)
_MIX_TWO = np.uint64(0x94D049BB133111EB)

AHEAD = 8_192
"""Numbers made at once: a few at a time cost nearly as much."""


class RandomSource:
    """A sequence of numbers that is the same each time; each call continues it."""

    def __init__(self) -> None:
        self._made = 0
        self._left = np.zeros(0)

    def uniform(self, *shape: int) -> Floats:
        """Numbers from 0 up to, not including, 1."""
        size = math.prod(shape)
        while len(self._left) < size:
            self._left = np.concatenate([self._left, _mixed(self._made, AHEAD)])
            self._made += AHEAD
        found, self._left = self._left[:size], self._left[size:]
        return found.reshape(shape)

    def permutation(self, size: int) -> Ints:
        """The numbers below this size, shuffled."""
        return self.uniform(size).argsort(kind="stable")


def _mixed(made: int, count: int) -> Floats:
    mixed = np.arange(made + 1, made + count + 1, dtype=np.uint64) * _STEP
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _MIX_ONE
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _MIX_TWO
    mixed ^= mixed >> np.uint64(31)
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53
