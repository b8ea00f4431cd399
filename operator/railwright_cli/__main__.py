"""``railwright``: one command, with a subcommand for each question.

A subcommand is imported when it is used: those that compute import numpy and networkx, and those
that a user runs every minute do not wait for that.
"""

from __future__ import annotations

import difflib
import importlib.metadata
import io
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from typer.core import TyperGroup
from typer.main import get_command

from railwright_cli import kubeconfig
from railwright_cli.errors import EXIT_NEGATIVE, EXIT_NOT_DONE, CommandError, UsageError
from railwright_topology.wiring import WiringError

ENDS = (signal.SIGTERM, signal.SIGHUP)
HELP = {"help_option_names": ["-h", "--help"]}

COMMANDS = {
    "submit": "railwright_cli.submit",
    "queue": "railwright_cli.queue",
    "status": "railwright_cli.status",
    "why": "railwright_cli.why",
    "logs": "railwright_cli.logs",
    "cancel": "railwright_cli.lifecycle",
    "suspend": "railwright_cli.lifecycle",
    "resume": "railwright_cli.lifecycle",
    "info": "railwright_cli.info",
    "nodes": "railwright_cli.nodes",
    "doctor": "railwright_cli.doctor",
    "topology": "railwright_cli.topology",
    "explain": "railwright_cli.explain",
    "profile": "railwright_cli.profiles",
}
"""The module of each subcommand, in the order of the help."""

_COMMANDS = ", ".join(COMMANDS)


def _options(
    _file: Annotated[
        Path | None,
        typer.Option(
            "--kubeconfig",
            exists=True,
            dir_okay=False,
            metavar="FILE",
            callback=kubeconfig.use,
            # Before a shell completes the names of jobs.
            is_eager=True,
            expose_value=False,
            help="the kubeconfig; default: those in the variable KUBECONFIG, else ~/.kube/config",
        ),
    ] = None,
) -> None:
    """Of all subcommands that read a cluster."""


def _cluster_options() -> list[Any]:
    alone = typer.Typer(add_completion=False)
    alone.command()(_options)
    return [each for each in get_command(alone).params if each.name != "help"]


class Subcommands(TyperGroup):
    """The subcommands, imported one by one."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Their names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """One of them. Raises UsageError with the nearest name."""
        if cmd_name not in COMMANDS:
            nearest = difflib.get_close_matches(cmd_name, COMMANDS, n=1)
            instead = f"the nearest is {nearest[0]!r}" if nearest else f"there are {_COMMANDS}"
            raise UsageError(f"there is no command {cmd_name!r}; {instead}")
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        function: Any = getattr(importlib.import_module(COMMANDS[cmd_name]), cmd_name)
        alone.command(name=cmd_name, context_settings=HELP)(function)
        command = get_command(alone)
        if any(each.name == "context" for each in command.params):
            command.params += _cluster_options()
        return command


app = typer.Typer(
    cls=Subcommands,
    help="Submit, follow and explain training jobs; inspect nodes and networks.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(is_given: bool) -> None:
    if is_given:
        typer.echo(f"railwright {importlib.metadata.version('railwright')}")
        raise typer.Exit


@app.callback(context_settings=HELP)
def railwright(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Without work of its own."""


def main(arguments: Sequence[str] | None = None, prog_name: str = "railwright") -> None:
    """Run a command and exit: 0; 1 if the job failed; 2 with the reason on stderr."""
    _prepare_streams()
    # So that a view leaves the terminal as it was. What nohup ignores stays ignored.
    ends = [each for each in ENDS if signal.getsignal(each) is signal.SIG_DFL]
    for number in ends:
        signal.signal(number, _end)
    try:
        try:
            app(arguments, prog_name=prog_name)
        finally:
            _flush()
    except BrokenPipeError:
        sys.exit(EXIT_NEGATIVE)
    except (CommandError, WiringError, OSError, ValidationError, UnicodeDecodeError) as error:
        typer.echo(f"railwright: {error}", err=True)
        sys.exit(EXIT_NOT_DONE)
    finally:
        for number in ends:
            signal.signal(number, signal.SIG_DFL)


def _prepare_streams() -> None:
    """A program can be started without some of them. A terminal that has no bars gets question
    marks."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _flush() -> None:
    """Write what is left. What cannot be written is not tried again when the process ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def _end(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
