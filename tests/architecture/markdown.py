"""Markdown as generated pages have it: tables, and times for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table, with an empty line before it. An empty cell is shown as a hyphen."""
    lines = ["", _row(head), "|" + "---|" * len(head), *map(_row, rows), ""]
    return "\n".join(lines)


def seconds(amount: float) -> str:
    """A time in the largest unit in which it is a whole number, from two minutes on."""
    for unit, length in (("h", 3600), ("min", 60)):
        if amount >= length and amount % length == 0 and amount >= 120:
            return f"{amount / length:g} {unit}"
    return f"{amount:g} s"


def _row(cells: Sequence[str]) -> str:
    texts = (cell.replace("|", "\\|").strip() or "-" for cell in cells)
    return f"| {' | '.join(texts)} |"
