"""``railwright profile``: what all ranks of a pre-run recorded, as one document.

A pre-run's ranks each leave a file in the folder that RAILWRIGHT_PROFILE_FOLDER names.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from railwright import profile as recorded
from railwright_cli.asking import UsageError
from railwright_conversion import profiles as reading
from railwright_scheduler.profile import Profile

Found = TypeVar("Found")


def add(commands: Any) -> None:
    """Add the subcommand."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "profile", help="what ranks recorded in a pre-run, as one document", description=__doc__
    )
    parser.add_argument("folder", type=Path, help="where each rank left rank-N.json")
    parser.set_defaults(answer=_answer)


def _answer(asked: argparse.Namespace) -> str:
    folder: Path = asked.folder
    parts = [_read(path, recorded.recorded) for path in sorted(folder.glob(recorded.FILES))]
    try:
        return recorded.encoded(recorded.merged(parts)).decode() + "\n"
    except ValueError as error:
        raise UsageError(f"{folder}: {error}") from error


def read(path: Path) -> Profile:
    """A profile's file. Raises UsageError for what is none, or OSError."""
    return _read(path, reading.profile)


def _read(path: Path, reader: Callable[[bytes], Found]) -> Found:
    with path.open("rb") as file:
        data = file.read(recorded.BYTES_MAX + 1)
    try:
        return reader(data)
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from error
