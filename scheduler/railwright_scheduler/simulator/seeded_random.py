"""A seeded random source: the same seed gives the same run, in every process and version.

SplitMix64 (G. Steele, D. Lea, C. Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA
2014), in the form and with the constants that S. Vigna gives on prng.di.unimi.it: one addition and
one mix a number, period 2**64. ``below`` takes a remainder; its bias, under 2**-50 for the small
bounds here, does not matter to a search for faults.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Generic, TypeVar

T = TypeVar("T")

_MASK = 2**64 - 1


class SeededRandom:
    """A stream of random numbers from a seed."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def number(self) -> int:
        """The next of 2**64 numbers."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return mixed ^ (mixed >> 31)

    def below(self, bound: int) -> int:
        """A number from 0 up to, not including, the bound."""
        assert bound > 0, bound
        return self.number() % bound

    def happens(self, permille: int) -> bool:
        """True in so many of a thousand cases."""
        return self.below(1000) < permille

    def pick(self, items: Sequence[T]) -> T:
        """One of the items."""
        return items[self.below(len(items))]


class Wheel(Generic[T]):
    """Things with weights, in the order of their mapping."""

    def __init__(self, weights: Mapping[T, int]) -> None:
        self._things = list(weights)
        self._ends = list(accumulate(weights.values()))

    def pick(self, rng: SeededRandom) -> T:
        """One of them, by weight."""
        return self._things[bisect_right(self._ends, rng.below(self._ends[-1]))]
