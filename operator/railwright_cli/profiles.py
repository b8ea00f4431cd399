"""``railwright profile``: the profile of a pre-run, merged from the files of its ranks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from railwright import profile as recorded
from railwright_cli.errors import UsageError
from railwright_cli.progress import counted_progress, shown_progress
from railwright_conversion import profiles
from railwright_scheduler.model.profile import Profile

Read = TypeVar("Read")


def profile(folder: Annotated[Path, typer.Argument(help="folder with each rank's file")]) -> None:
    """Merge the recordings of all ranks into a profile.

    Each rank writes a file to the folder in RAILWRIGHT_PROFILE_FOLDER.
    """
    files = sorted(folder.glob(recorded.FILES))
    with counted_progress("reading files of ranks", files) as paths:
        parts = [_read(path, recorded.recorded) for path in paths]
    try:
        with shown_progress("merging them"):
            found = recorded.encoded(recorded.merged(parts))
    except ValueError as error:
        raise UsageError(f"{folder}: {error}") from error
    typer.echo(found.decode())


def read(path: Path) -> Profile:
    """Read a profile's file. Raises UsageError if it is malformed, or OSError."""
    return _read(path, profiles.profile)


def _read(path: Path, reader: Callable[[bytes], Read]) -> Read:
    with path.open("rb") as file:
        data = file.read(recorded.BYTES_MAX + 1)
    try:
        return reader(data)
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from error
