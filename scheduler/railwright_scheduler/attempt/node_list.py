"""Node names in order, in few bytes: ``gpu-{0001,0002}``, ``ip-10-0-{3-17,9-201}.example.com``.

The ledger and all that reads it use this form. The names keep their order, which is that of node
ranks. A plain list of names is read too, as names of Kubernetes objects have no braces.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_FOLDED = re.compile(r"([^{}]*)\{([^{}]*)\}([^{}]*)")


def fold(names: Sequence[str]) -> tuple[str, ...]:
    """The names as one pattern, with their common prefix and suffix once."""
    if len(names) < 2:
        return tuple(names)
    before = _common_prefix(names)
    start = len(before)
    after = _common_prefix([name[start:][::-1] for name in names])[::-1]
    end = -len(after) or None
    return (f"{before}{{{','.join([name[start:end] for name in names])}}}{after}",)


def unfold(patterns: Iterable[str]) -> tuple[str, ...]:
    """The names that ``fold`` was given, in their order."""
    names: list[str] = []
    for pattern in patterns:
        folded = _FOLDED.fullmatch(pattern)
        if folded is None:
            names.append(pattern)
        else:
            before, middles, after = folded.groups()
            names.extend([f"{before}{middle}{after}" for middle in middles.split(",")])
    return tuple(names)


def _common_prefix(texts: Sequence[str]) -> str:
    # Of sorted texts the first and the last differ earliest.
    first, last = min(texts), max(texts)
    for at, (one, other) in enumerate(zip(first, last, strict=False)):
        if one != other:
            return first[:at]
    return first
