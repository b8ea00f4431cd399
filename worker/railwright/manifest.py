"""Checkpoints as folders: commit with a manifest, verification, and removal of old ones.

``<directory>/<job uid>/attempt-<n>/<group>/step-<s>/`` holds the files of all ranks of a group. It
counts once ``manifest.json`` is there, which is written beside its place, synced, and renamed into
it last; it has size and SHA-256 of every file. A checkpoint is therefore read twice, and damage by
a crash, a full disk or a bad block is found before it is loaded.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import os
import re
import shutil
import sys
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from railwright import protocol

NAME = "manifest.json"
RUN = "run"
"""A file in the folder of a group: the run of the attempt that wrote there."""

BYTES_MAX = 64 * 2**20
FILES_MAX = 4 * protocol.RANKS_MAX
FILE_BYTES_MAX = 2**60
READERS_MAX = 8

FOLDER = re.compile(r"(attempt|step)-(\d{1,13})")


class TornError(Exception):
    """A checkpoint that does not count, with the reason."""


@dataclass(frozen=True, slots=True)
class File:
    """One file of a checkpoint."""

    name: protocol.Name
    size_bytes: Annotated[int, protocol.Between(0, FILE_BYTES_MAX)]
    sha256: protocol.Name


@dataclass(frozen=True, slots=True)
class Volume:
    """The checkpoints of one group of a job."""

    job: Path
    group: str

    def attempt(self, number: int) -> Path:
        """The folder of the group in an attempt."""
        return self.job / f"attempt-{number}" / self.group

    def checkpoint(self, checkpoint: protocol.Checkpoint) -> Path:
        """The folder of a checkpoint."""
        return self.attempt(checkpoint.attempt) / f"step-{checkpoint.step}"

    def attempts(self) -> list[int]:
        """The attempts in which the group left a folder, newest first."""
        return [number for number in _numbers(self.job, "attempt") if self.attempt(number).is_dir()]

    def steps(self, attempt: int) -> list[int]:
        """The steps of the group's checkpoints in an attempt, torn ones too, newest first."""
        return _numbers(self.attempt(attempt), "step")

    def is_complete(self, checkpoint: protocol.Checkpoint) -> bool:
        """Whether a checkpoint has its manifest."""
        return (self.checkpoint(checkpoint) / NAME).exists()


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files of a checkpoint, and the number of ranks that wrote it."""

    group: protocol.GroupName
    attempt: protocol.Attempt
    step: protocol.Step
    world_size: Annotated[int, protocol.Between(1, protocol.RANKS_MAX)]
    files: Annotated[tuple[File, ...], protocol.AtMost(FILES_MAX)]


def described(folder: Path, names: Iterable[str]) -> list[File]:
    """Size and hash of these files, once their data is on disk. Raises OSError."""
    with concurrent.futures.ThreadPoolExecutor(READERS_MAX) as pool:
        return list(pool.map(lambda name: _described(folder / name), sorted(names)))


def claim(volume: Volume, attempt: int, *, run: str) -> None:
    """Claim the group's folder in the attempt for this ``run`` of it. Raises OSError.

    An attempt number is repeated only after the cluster's store was restored from a backup. The
    folder of the earlier run is then moved away, so that no later attempt reads it.
    """
    folder = volume.attempt(attempt)
    if folder.exists() and not is_claimed(volume, attempt, run=run):
        folder.rename(folder.with_name(f"void-{folder.name}-{uuid.uuid4().hex[:8]}"))
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / RUN).exists():
        write_durably(folder / RUN, run.encode())


def is_claimed(volume: Volume, attempt: int, *, run: str) -> bool:
    """Whether the group's folder in the attempt is that of this ``run``. Raises OSError."""
    mark = volume.attempt(attempt) / RUN
    return mark.exists() and mark.read_text() == run


def begin(folder: Path) -> None:
    """Create the folder of a checkpoint; replace a partial one. Raises OSError."""
    if (folder / NAME).exists():
        raise FileExistsError(f"{folder} is a checkpoint already")
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)


def prepare(folder: Path, manifest: Manifest) -> None:
    """Write the manifest durably under a temporary name. Raises OSError."""
    write_durably(folder / f"{NAME}.partial", protocol.encode(manifest, bytes_max=BYTES_MAX))


def publish(folder: Path) -> None:
    """Rename the manifest into place: the checkpoint counts. Raises OSError."""
    os.rename(folder / f"{NAME}.partial", folder / NAME)
    for changed in (folder, *folder.parents[:3]):
        _sync_folder(changed)


def read(volume: Volume, checkpoint: protocol.Checkpoint) -> Manifest:
    """The manifest of a checkpoint. Raises TornError."""
    folder = volume.checkpoint(checkpoint)
    try:
        manifest = protocol.decode(Manifest, (folder / NAME).read_bytes(), bytes_max=BYTES_MAX)
    except FileNotFoundError as error:
        raise TornError(f"there is no {NAME}") from error
    except (OSError, protocol.ProtocolError) as error:
        raise TornError(str(error)) from error
    of_folder = (volume.group, checkpoint.attempt, checkpoint.step)
    if (manifest.group, manifest.attempt, manifest.step) != of_folder:
        raise TornError(
            f"the manifest is of step {manifest.step} of group {manifest.group} in attempt "
            f"{manifest.attempt}, not of this folder"
        )
    outside = [file.name for file in manifest.files if Path(file.name).name != file.name]
    if outside:
        raise TornError(f"{outside[0]!r} is not a file of this folder")
    return manifest


def find_damage(folder: Path, files: Sequence[File]) -> str | None:
    """Read these files; return the first that is not as it was written, and why."""
    expected = sorted(files, key=lambda file: file.name)
    try:
        present = described(folder, [file.name for file in expected])
    except FileNotFoundError as error:
        return f"there is no {Path(error.filename).name}"
    except OSError as error:
        return str(error)
    for written, found in zip(expected, present, strict=True):
        if written != found:
            return f"{written.name} is not as it was written"
    return None


def prune(volume: Volume, readable: Sequence[protocol.Checkpoint], *, keep: int) -> None:
    """Remove all checkpoints of the group but the newest ``keep`` readable ones.

    ``readable`` has, for each attempt, the step up to which checkpoints may still be read. The
    newest of these attempts is the caller's own; folders of newer ones are not touched. Failures
    are logged, not raised: training goes on with a full disk.
    """
    caps = {cap.attempt: cap.step for cap in readable}
    found = [
        protocol.Checkpoint(attempt, step)
        for attempt in volume.attempts()
        if attempt <= max(caps)
        for step in volume.steps(attempt)
    ]
    counting = [
        one for one in found if one.step <= caps.get(one.attempt, -1) and volume.is_complete(one)
    ]
    for one in found:
        if one not in counting[:keep]:
            remove(volume.checkpoint(one))


def remove_later(volume: Volume, attempt: int, *, after: int) -> None:
    """Remove what the attempt saved after this step. Failures are logged."""
    for step in volume.steps(attempt):
        if step > after:
            remove(volume.checkpoint(protocol.Checkpoint(attempt, step)))


def demand_all(folder: Path, files: Iterable[File]) -> None:
    """Raise OSError if files that ranks have written are not in this folder, as if each rank wrote
    to a volume of its own."""
    listed = {entry.name for entry in folder.iterdir()}
    # A listing of a network file system may be old.
    lost = [
        each.name for each in files if each.name not in listed and not (folder / each.name).exists()
    ]
    if lost:
        raise OSError(
            f"{folder} has no {lost[0]} and {len(lost) - 1} more that other ranks have written: "
            "is it on a volume that all ranks share?"
        )


def remove(folder: Path) -> None:
    """Remove a checkpoint, its manifest first: a partly removed one must not count. A failure is
    logged."""
    try:
        (folder / NAME).unlink(missing_ok=True)
        shutil.rmtree(folder)
    except OSError as error:
        print(f"railwright: {folder} was not removed: {error}", file=sys.stderr)


def write_durably(path: Path, data: bytes) -> None:
    """Write the file and wait until it is on disk. Raises OSError."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _numbers(folder: Path, kind: str) -> list[int]:
    if not folder.is_dir():
        return []
    found = [FOLDER.fullmatch(entry.name) for entry in folder.iterdir()]
    return sorted((int(name[2]) for name in found if name and name[1] == kind), reverse=True)


def _described(path: Path) -> File:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        size_bytes = os.fstat(file.fileno()).st_size
    return File(name=path.name, size_bytes=size_bytes, sha256=digest)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
