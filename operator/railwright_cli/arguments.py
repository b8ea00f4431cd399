"""Arguments of commands: options whose value is a name in a table, and their errors."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, TypeVar

import typer

Value = TypeVar("Value")


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
