"""Many names in few characters: ``node-[0000-0015,0020]``, ``leaf-[0-1]-[0-7]``.

`sources.hostlist` expands it, if no name has a bracket, a comma or a space.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable

from railwright_topology.grouping import group

DIGITS_MAX = 18
"""Longer numbers are not folded, as nothing expands them."""


def fold(names: Iterable[str]) -> str:
    """These names; those that differ in one number alone become one, with a pair of brackets.

    The last number of a name goes first, then the one before it, over what is left.
    """
    left = {tuple(re.split(r"([0-9]+)", name)) for name in names}
    longest = max(map(len, left), default=0)
    for place in range(longest - 2, 0, -2):
        left = _folded(left, place)
    return ",".join(sorted("".join(parts) for parts in left))


def _folded(names: Collection[tuple[str, ...]], place: int) -> set[tuple[str, ...]]:
    # Short names have no number at this place.
    kept = {parts for parts in names if not _is_foldable(parts, place)}
    equal = group(
        ((parts[:place], len(parts[place]), parts[place + 1 :]), parts[place])
        for parts in names
        if _is_foldable(parts, place)
    )
    return kept | {
        (*before, _ranges(sorted(numbers, key=int), width), *after)
        for (before, width, after), numbers in equal.items()
    }


def _is_foldable(parts: tuple[str, ...], place: int) -> bool:
    return place < len(parts) and len(parts[place]) <= DIGITS_MAX


def _ranges(numbers: list[str], width: int) -> str:
    if len(numbers) == 1:
        return numbers[0]
    runs = []
    for _, run in itertools.groupby(enumerate(map(int, numbers)), lambda at: at[1] - at[0]):
        ends = [f"{number:0{width}d}" for _, number in run]
        runs.append(ends[0] if len(ends) == 1 else f"{ends[0]}-{ends[-1]}")
    return f"[{','.join(runs)}]"
