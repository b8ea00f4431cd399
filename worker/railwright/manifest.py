"""Checkpoints as folders: commit with a manifest, verification, and removal of old ones.

``<directory>/<job uid>/attempt-<n>/<group>/step-<s>/`` holds the files of all ranks of a group. It
counts once ``manifest.json`` is there, which is written beside its place, synced, and renamed into
it last; it has size and SHA-256 of every file. A checkpoint is therefore read twice, and damage by
a crash, a full disk or a bad block is found before it is loaded.
"""

from __future__ import annotations

import concurrent.futures
import errno
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

DAMAGE = frozenset({errno.EIO, errno.EBADMSG, errno.EUCLEAN, errno.EISDIR, errno.ENOTDIR})
"""How file systems report that data is lost. Other errors of a read, such as ESTALE, tell nothing
about a checkpoint: the volume may be away for a while."""


class TornError(Exception):
    """A checkpoint that does not count, with the reason."""


class UnreadableError(TornError):
    """A checkpoint whose data the file system reports as lost, which an outage may cause too."""


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

    def name(self, checkpoint: protocol.Checkpoint) -> str:
        """How messages call a checkpoint: its folder below that of the job."""
        return str(self.checkpoint(checkpoint).relative_to(self.job))

    def attempts(self) -> list[int]:
        """The attempts in which the group left a folder, newest first. Raises OSError."""
        return [number for number in _numbers(self.job, "attempt") if _exists(self.attempt(number))]

    def steps(self, attempt: int) -> list[int]:
        """The steps of the group's checkpoints in an attempt, torn ones too, newest first. Raises
        OSError."""
        return _numbers(self.attempt(attempt), "step")

    def is_complete(self, checkpoint: protocol.Checkpoint) -> bool:
        """Whether a checkpoint has its manifest. Raises OSError."""
        return _exists(self.checkpoint(checkpoint) / NAME)


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
    if _exists(folder) and not is_claimed(volume, attempt, run=run):
        set_aside(volume, attempt)
    folder.mkdir(parents=True, exist_ok=True)
    if not _exists(folder / RUN):
        write_durably(folder / RUN, run.encode())


def unread(volume: Volume, attempt: int, readable: Sequence[protocol.Checkpoint]) -> list[int]:
    """The attempts before this one that saved checkpoints, if none that is ``readable`` is left.
    Raises OSError.

    The cluster's store was restored from a backup, and the checkpoints that it records have been
    replaced since; or the operator was away when they were saved. They are all that is left of the
    training.
    """
    caps = {cap.attempt: cap.step for cap in readable}
    found = [
        checkpoint
        for before in volume.attempts()
        if before < attempt
        for step in volume.steps(before)
        if volume.is_complete(checkpoint := protocol.Checkpoint(before, step))
    ]
    if any(one.step <= caps.get(one.attempt, -1) for one in found):
        return []
    return [*dict.fromkeys(one.attempt for one in found)]


def set_aside(volume: Volume, attempt: int) -> Path:
    """Move the group's folder in the attempt to where no attempt reads it. Raises OSError."""
    folder = volume.attempt(attempt)
    return folder.rename(folder.with_name(f"void-{folder.name}-{uuid.uuid4().hex[:8]}"))


def is_claimed(volume: Volume, attempt: int, *, run: str) -> bool:
    """Whether the group's folder in the attempt is that of this ``run``. Raises OSError."""
    try:
        return (volume.attempt(attempt) / RUN).read_text() == run
    except FileNotFoundError:
        return False


def begin(folder: Path) -> None:
    """Create the folder of a checkpoint; replace a partial one. Raises OSError."""
    if _exists(folder / NAME):
        raise FileExistsError(f"{folder} is a checkpoint already")
    if _exists(folder):
        shutil.rmtree(folder)
    folder.mkdir(parents=True)


def prepare(folder: Path, manifest: Manifest) -> None:
    """Write the manifest durably under a temporary name. Raises OSError."""
    write_durably(folder / f"{NAME}.partial", protocol.encode(manifest, bytes_max=BYTES_MAX))


def publish(folder: Path) -> bool:
    """Rename the manifest into place: the checkpoint counts. Return whether it surely does after a
    loss of power too. Raises OSError."""
    try:
        os.rename(folder / f"{NAME}.partial", folder / NAME)
    except FileNotFoundError:
        if not _exists(folder / NAME):  # NFS may send a request twice.
            raise
    try:
        for changed in (folder, *folder.parents[:3]):
            _sync_folder(changed)
    except OSError as error:
        print(f"railwright: {folder} is saved, its name is not synced: {error}", file=sys.stderr)
        return False
    return True


def read(volume: Volume, checkpoint: protocol.Checkpoint) -> Manifest:
    """The manifest of a checkpoint. Raises TornError, and OSError where that tells nothing about
    it."""
    folder = volume.checkpoint(checkpoint)
    try:
        manifest = protocol.decode(Manifest, (folder / NAME).read_bytes(), bytes_max=BYTES_MAX)
    except OSError as error:
        raise _torn(error) from error
    except protocol.ProtocolError as error:
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


def find_damage(folder: Path, files: Sequence[File]) -> TornError | None:
    """Read these files; return why the first is not as it was written. Raises OSError where that
    tells nothing about them."""
    expected = sorted(files, key=lambda file: file.name)
    try:
        present = described(folder, [file.name for file in expected])
    except OSError as error:
        return _torn(error)
    for written, found in zip(expected, present, strict=True):
        if written != found:
            return TornError(f"{written.name} is not as it was written")
    return None


def _torn(error: OSError) -> TornError:
    """What this error of a read tells about a checkpoint. Raises it if that is nothing."""
    if isinstance(error, FileNotFoundError):
        return TornError(f"there is no {Path(error.filename or 'file').name}")
    if error.errno in DAMAGE:
        return UnreadableError(str(error))
    raise error


def prune(volume: Volume, readable: Sequence[protocol.Checkpoint], *, keep: int) -> None:
    """Remove all checkpoints of the group but the newest ``keep`` readable ones.

    ``readable`` has, for each attempt, the step up to which checkpoints may still be read. The
    newest of these attempts is the caller's own; folders of newer ones are not touched, those of
    earlier ones go with their last checkpoint. Failures are logged, not raised: training goes on
    with a full disk.
    """
    caps = {cap.attempt: cap.step for cap in readable}
    try:
        attempts = [each for each in volume.attempts() if each <= max(caps)]
        found = [
            protocol.Checkpoint(attempt, step)
            for attempt in attempts
            for step in volume.steps(attempt)
        ]
        counting = [
            one
            for one in found
            if one.step <= caps.get(one.attempt, -1) and volume.is_complete(one)
        ]
    except OSError as error:
        _say_not_removed(volume.job, error)
        return
    kept = counting[:keep]
    for one in found:
        if one not in kept:
            remove(volume.checkpoint(one))
    for attempt in {*attempts} - {max(caps), *(one.attempt for one in kept)}:
        _remove_empty(volume.attempt(attempt))


def _remove_empty(folder: Path) -> None:
    """Remove the folder of a group in an attempt if no checkpoint is left in it: every save lists
    them all. A failure is logged."""
    try:
        if all(each.name == RUN for each in folder.iterdir()):
            shutil.rmtree(folder)
            if not any(folder.parent.iterdir()):
                folder.parent.rmdir()
    except OSError as error:
        _say_not_removed(folder, error)


def remove_later(volume: Volume, attempt: int, *, after: int) -> None:
    """Remove what the attempt saved after this step. Failures are logged."""
    try:
        steps = volume.steps(attempt)
    except OSError as error:
        _say_not_removed(volume.attempt(attempt), error)
        return
    for step in steps:
        if step > after:
            remove(volume.checkpoint(protocol.Checkpoint(attempt, step)))


def remove_partial(volume: Volume, checkpoint: protocol.Checkpoint) -> None:
    """Remove what was written of a checkpoint that does not count. A failure is logged."""
    folder = volume.checkpoint(checkpoint)
    try:
        counts = volume.is_complete(checkpoint)
    except OSError as error:
        _say_not_removed(folder, error)
        return
    if not counts:
        remove(folder)


def demand_all(folder: Path, files: Iterable[File]) -> None:
    """Raise OSError if files that ranks have written are not in this folder, as if each rank wrote
    to a volume of its own."""
    listed = {entry.name for entry in folder.iterdir()}
    # A listing of a network file system may be old.
    lost = [
        each.name for each in files if each.name not in listed and not _exists(folder / each.name)
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
        _say_not_removed(folder, error)


def _say_not_removed(folder: Path, error: OSError) -> None:
    print(f"railwright: {folder} was not removed: {error}", file=sys.stderr)


def write_durably(path: Path, data: bytes) -> None:
    """Write the file and wait until it is on disk. Raises OSError."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _exists(path: Path) -> bool:
    """Whether this is there. Raises OSError where that cannot be known: ``Path.exists`` would say
    no, from Python 3.14 on."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _numbers(folder: Path, kind: str) -> list[int]:
    try:
        found = [FOLDER.fullmatch(name) for name in os.listdir(folder)]
    except (FileNotFoundError, NotADirectoryError):
        return []
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
