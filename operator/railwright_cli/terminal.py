"""Print trees and tables: styled and wrapped in a terminal, plain text elsewhere."""

from __future__ import annotations

import re
import sys

import typer
from rich.console import Console, RenderableType

PIPE_COLUMNS = 1 << 20
"""Wider than any line: what reads a pipe gets lines that are not wrapped."""


def show(*parts: RenderableType) -> None:
    """Print each part on lines of its own."""
    width = None if sys.stdout.isatty() else PIPE_COLUMNS
    console = Console(markup=False, highlight=False, emoji=False, width=width)
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    typer.echo(re.sub(" +$", "", captured.get(), flags=re.MULTILINE), nl=False)
