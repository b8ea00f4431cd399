"""``kubectl railwright``: kubectl runs a program of this name on the PATH, and another one for the
completion of its arguments."""

from __future__ import annotations

import os
import shlex
import sys

import typer

from railwright_cli.__main__ import main

NO_FILES = 4
"""The directive of cobra, kubectl's library, that keeps the shell from completing files."""


def plugin() -> None:
    """Run a command as a plugin of kubectl."""
    main(prog_name="kubectl railwright")


def complete() -> None:
    """Print what can follow the arguments, one a line, with its help behind a tab; the last
    argument may be incomplete. Typer's completion for fish has the same lines."""
    *words, incomplete = sys.argv[1:] or [""]
    os.environ |= {
        "_RAILWRIGHT_COMPLETE": "complete_fish",
        "_TYPER_COMPLETE_ARGS": f"{shlex.join(['railwright', *words])} {incomplete}",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    try:
        main([])
    finally:
        typer.echo(f":{NO_FILES}")
