"""Group pairs by their first element, for all modules that gather facts by node, kind or switch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")
Ordered = TypeVar("Ordered", bound=Any)


def group(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """All values of each key, both in the order in which they come."""
    found: dict[Key, list[Value]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def most_frequent(pairs: Iterable[tuple[Key, Ordered]]) -> dict[Key, Ordered]:
    """The most frequent value of each key; of equally frequent ones the smallest."""
    counts = {key: Counter(values) for key, values in group(pairs).items()}
    return {key: min(its, key=lambda value: (-its[value], value)) for key, its in counts.items()}
