"""Arguments of commands: options whose value is a name in a table or a duration, and their
errors."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any, TypeVar

import typer

Value = TypeVar("Value")

DURATION = re.compile(
    r"(?=.)(?:(\d{1,5})d)?(?:(\d{1,7})h)?(?:(\d{1,8})m)?(?:(\d{1,9})s)?", re.ASCII
)
UNITS = (86_400, 3_600, 60, 1)
LONGEST = 2**31 - 1
"""In seconds: 68 years."""


def seconds(text: str) -> int:
    """A duration in seconds: ``90s``, ``1h30m``. Raises BadParameter."""
    found = DURATION.fullmatch(text)
    parts = zip(found.groups(default="0"), UNITS, strict=True) if found else ()
    total = sum(int(count) * unit for count, unit in parts)
    if not 0 < total <= LONGEST:
        raise typer.BadParameter(f"{text!r} is no duration above zero, such as 90s, 10m or 1h30m")
    return total


def one_of(table: Mapping[str, Value], option: str, description: str) -> Any:
    """An option that takes a name and becomes its value; a wrong name gets the nearest one."""

    def parse(name: str) -> Value:
        if name not in table:
            (nearest,) = difflib.get_close_matches(name, table, n=1, cutoff=0)
            raise typer.BadParameter(
                f"{name!r} is none of {', '.join(sorted(table))}; the nearest is {nearest!r}"
            )
        return table[name]

    return typer.Option(
        option,
        parser=parse,
        metavar="NAME",
        autocompletion=lambda: sorted(table),
        help=f"{description}: {', '.join(sorted(table))}",
    )
