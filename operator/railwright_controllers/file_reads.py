"""Read topology files; if one is invalid, its last valid content stays. Discovery calls this."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from railwright_topology.fabric import Facts
from railwright_topology.sources import formats
from railwright_topology.sources.formats import File
from railwright_topology.wiring import WiringError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FileRead:
    """A file. ``facts`` is its newest valid content, ``time`` when that was written, and
    ``problem`` why its current content is invalid; each is empty if there is none."""

    file: File
    facts: tuple[Facts, ...] = ()
    problem: str = ""
    time: str = ""


def read_all(files: Sequence[tuple[File, str]], before: Sequence[FileRead]) -> tuple[FileRead, ...]:
    """Read the files that differ from those before, each given with the time of its last write."""
    held = {str(read.file): read for read in before}
    ordered = sorted(files, key=lambda each: str(each[0]))
    return tuple(_read(file, time, held.get(str(file))) for file, time in ordered)


def _read(file: File, time: str, held: FileRead | None) -> FileRead:
    """Read a file that changed. If it is invalid, its last valid content stays."""
    if held is not None and held.file == file:
        return held
    kept = held or FileRead(file)
    try:
        return FileRead(file, formats.read(file), time=time)
    except WiringError as refused:
        return replace(kept, file=file, problem=str(refused))
    except Exception as error:
        logger.exception("file read failed", extra={"file": str(file), "error": str(error)})
        return replace(kept, file=file, problem=f"could not be read: {type(error).__name__}")
