"""Rows of a command, as a table for people or as JSON and YAML for programs."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import typer
import yaml

Output = Literal["table", "wide", "json", "yaml"]
OutputOption = Annotated[Output, typer.Option("-o", "--output", help="for people, or for programs")]
Row = dict[str, Any]

GAP = "   "
UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
"""Control characters, also of terminals: messages may hold what a user's program printed."""

_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


@dataclass(frozen=True, slots=True)
class Column:
    """The values of one key of all rows. A wide one is in the table only with ``-o wide``."""

    title: str
    key: str
    is_wide: bool = False


def show_rows(columns: Sequence[Column], rows: Sequence[Row], output: Output, none: str) -> None:
    """Print rows. A table without any prints the sentence ``none`` on stderr."""
    if output in ("json", "yaml"):
        show_document(list(rows), output)
    elif not rows:
        typer.echo(none, err=True)
    else:
        shown = [each for each in columns if output == "wide" or not each.is_wide]
        for line in lines(shown, rows):
            typer.echo(line)


def show_document(document: Any, output: Output) -> None:
    """Print a value as JSON, or else as YAML. Times are in ISO 8601."""
    text = json.dumps(document, default=datetime.isoformat, indent=1, ensure_ascii=False)
    if output != "json":
        text = yaml.safe_dump(json.loads(text), sort_keys=False, allow_unicode=True).rstrip()
    typer.echo(text)


def lines(columns: Sequence[Column], rows: Sequence[Row]) -> list[str]:
    """The table, its head first."""
    now = datetime.now(UTC)
    table = [[each.title for each in columns]]
    table += [[_cell(row.get(each.key), now) for each in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [GAP.join(map(str.ljust, line, widths)).rstrip() for line in table]


def printable(text: str) -> str:
    """The text on one line, without control characters."""
    return UNPRINTABLE.sub(" ", text)


def age(since: datetime, now: datetime) -> str:
    """A duration as kubectl prints it, with two units at most: ``5d3h``, ``2m30s``, ``45s``."""
    return duration((now - since).total_seconds())


def duration(seconds: float) -> str:
    """The same of so many seconds."""
    left = max(0, int(seconds))
    shown: list[str] = []
    for unit, size in _UNITS:
        count, rest = divmod(left, size)
        if count or (unit == "s" and not shown):
            shown.append(f"{count}{unit}")
            left = rest
        elif shown:
            break
        if len(shown) == 2:
            break
    return "".join(shown)


def _cell(value: Any, now: datetime) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, datetime):
        return age(value, now)
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "-"
    return printable(str(value))
