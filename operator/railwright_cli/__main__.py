"""``railwright``: one command, with a subcommand for each question."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from railwright_cli.arguments import UsageError
from railwright_cli.cluster import FAILED
from railwright_cli.explain import explain
from railwright_cli.profiles import profile
from railwright_cli.topology import topology
from railwright_topology.wiring import WiringError

app = typer.Typer(
    help="Inspect networks, jobs and workloads.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in (explain, profile, topology):
    app.command()(command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit: 0, or 2 with the reason on stderr."""
    try:
        app(arguments, prog_name="railwright")
    except (UsageError, WiringError, OSError, UnicodeDecodeError, *FAILED) as error:
        typer.echo(f"railwright: {error}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
