"""Host lists as Slurm and Topograph write them: ``gpu[01-16,20],login`` for eighteen names.

Brackets may stand anywhere and more than once (``r[1-2]n[1-8]``). Each number of a range is as wide
as the first of it, so ``[08-10]`` keeps its zero.
"""

from __future__ import annotations

import re

NAME_MAX = 253
"""Characters of a node's name in Kubernetes."""

_PART = re.compile(r"\[([^\[\]]*)\]|([^\[\],\s]+)|[,\s]+|.", re.DOTALL)
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")


class HostlistError(ValueError):
    """The rule that a host list breaks; its reader adds the line."""


def is_name(text: str) -> bool:
    """Whether a node, a switch or a device can have this name."""
    return 0 < len(text) <= NAME_MAX and text.isprintable()


def expand(text: str, at_most: int) -> list[str]:
    """The names in their order. Raises before it makes more names than ``at_most``."""
    names: list[str] = []
    current: list[str] = []
    for part in _PART.finditer(text):
        if part[1] is not None:
            numbers = _numbers(part[1], text, at_most)
            current = current or [""]
            if len(names) + len(current) * len(numbers) > at_most:
                raise _too_many(text, at_most)
            current = [name + number for name in current for number in numbers]
        elif part[2] is not None:
            current = [name + part[2] for name in current or [""]]
        elif part[0] in "[]":
            raise HostlistError(f"{text[:80]!r} has a bracket without its other one")
        else:
            names += current
            current = []
        if current and len(current[-1]) > NAME_MAX:
            raise HostlistError(f"{text[:80]!r}: a name has at most {NAME_MAX} characters")
    names += current
    if len(names) > at_most:
        raise _too_many(text, at_most)
    return names


def _numbers(ranges: str, text: str, at_most: int) -> list[str]:
    found: list[str] = []
    for piece in ranges.split(","):
        numbers = _RANGE.fullmatch(piece.strip())
        if numbers is None:
            raise HostlistError(
                f"{text[:80]!r}: {piece[:40]!r} is neither a number nor a range such as 01-16"
            )
        first, last = int(numbers[1]), int(numbers[2] or numbers[1])
        if last < first:
            raise HostlistError(f"{text[:80]!r}: the range {piece[:40]!r} runs backwards")
        if len(found) + last - first >= at_most:
            raise _too_many(text, at_most)
        width = len(numbers[1])
        found += [f"{number:0{width}}" for number in range(first, last + 1)]
    return found


def _too_many(text: str, at_most: int) -> HostlistError:
    return HostlistError(f"{text[:80]!r} stands for more names than fit: at most {at_most}")
