"""Rows of a command, as a table for people or as JSON and YAML for programs."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import typer
import yaml

from railwright_api import names

Output = Literal["table", "wide", "json", "yaml"]
OutputOption = Annotated[Output, typer.Option("-o", "--output", help="for people, or for programs")]
ResultOutput = Literal["text", "json", "yaml", "name"]
ResultOutputOption = Annotated[
    ResultOutput, typer.Option("-o", "--output", help="for people, or for programs, job by job")
]
Row = dict[str, Any]

TITLES = {"created": "AGE", "since": "AGE", "runningSince": "TIME", "type": "CONDITION"}
"""Titles of columns whose rows have another key."""

GAP = "   "
UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
"""Control characters, also of terminals: messages may hold what a user's program printed."""

UNESCAPED = re.compile(r"[\x7f-\x9f]")
"""Of these, those that JSON may hold as they are."""

_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
"""With their seconds, the longest first."""


def show_rows(
    rows: Sequence[Row],
    output: Output,
    none: str,
    *,
    hidden: Collection[str] = (),
    wide: Collection[str] = (),
) -> None:
    """Print rows, with a column for each key. A table has no ``hidden`` keys, and ``wide`` ones
    only with ``-o wide``; without rows it is the sentence ``none`` on stderr."""
    if output in ("json", "yaml"):
        show_document(list(rows), output)
    elif not rows:
        typer.echo(none, err=True)
    else:
        left_out = {*hidden} if output == "wide" else {*hidden, *wide}
        for line in lines([key for key in rows[0] if key not in left_out], rows):
            typer.echo(line)


def show_result(line: str, name: str, document: Any, output: ResultOutput) -> None:
    """Print what a command did to one job: a line, its name as kubectl prints it, or a document.
    YAML documents are separate, so that several can be applied again."""
    if output == "text":
        typer.echo(line)
    elif output == "name":
        typer.echo(f"trainingjob.{names.GROUP}/{name}")
    else:
        if output == "yaml":
            typer.echo("---")
        show_document(document, output)


def show_document(document: Any, output: str) -> None:
    """Print a value as JSON, or else as YAML. Times are in ISO 8601."""
    text = json.dumps(document, default=_plain, indent=1, ensure_ascii=False)
    text = UNESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    if output != "json":
        text = yaml.safe_dump(json.loads(text), sort_keys=False, allow_unicode=True).rstrip()
    typer.echo(text)


def lines(keys: Sequence[str], rows: Sequence[Row]) -> list[str]:
    """The table with a column for each of these keys, its head first."""
    now = datetime.now(UTC)
    table = [[*map(_title, keys)]]
    table += [[_cell(row.get(key), now) for key in keys] for row in rows]
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
    for (unit, size), (shorter, small) in itertools.pairwise(_UNITS):
        if left >= size:
            more = left % size // small
            return f"{left // size}{unit}" + (f"{more}{shorter}" if more else "")
    return f"{left}s"


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else dataclasses.asdict(value)


def _title(key: str) -> str:
    """``FREE DEVICES`` for ``freeDevices``."""
    return TITLES.get(key) or re.sub("(?=[A-Z])", " ", key).upper()


def _cell(value: Any, now: datetime) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, datetime):
        return age(value, now)
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "-"
    return printable(str(value))
