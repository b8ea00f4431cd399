"""``railwright``: one command, with a subcommand for each question."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from railwright_cli import explain, profiles, topology


def main(arguments: Sequence[str] | None = None) -> int:
    """Answer (0), or say on stderr what is wrong with the question (2)."""
    parser = argparse.ArgumentParser(prog="railwright", description="Ask Railwright.")
    commands = parser.add_subparsers(title="commands", required=True)
    explain.add(commands)
    profiles.add(commands)
    topology.add(commands)
    asked = parser.parse_args(arguments)
    try:
        print(asked.answer(asked), end="")
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever reads has seen enough; what is left must not be tried again at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except topology.REFUSED as error:
        print(f"railwright: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
