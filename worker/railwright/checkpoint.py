"""Checkpoints that continue bit for bit, on any number of ranks, after any interruption.

All ranks write their files. Then rank 0 requests the commit from the operator, which refuses it if
the attempt was revoked. Only then the manifest is renamed into place. Without a response within 5 s
training goes on and the manifest is renamed; whether later attempts read the checkpoint follows
from the list that the operator sends them at their start.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from railwright import channel, environment, manifest, progress, protocol

if TYPE_CHECKING:
    import torch

    from railwright.training_state import Optimizers, Stateful

KEEP = 3
LOCAL_JOB = "local"


class AttemptRevoked(Exception):  # noqa: N818  # not an error of the script
    """Another attempt has taken over: this one may commit nothing more and should end."""


class Checkpointer:
    """Saves and loads a training run; all ranks call it alike.

    ``directory`` is on a volume that all ranks share. ``others`` are the script's own objects with
    ``state_dict`` and ``load_state_dict``, each saved for each rank: its place in the data, a
    learning rate schedule. The newest ``keep`` checkpoints stay. Outside a Railwright job the
    checkpoints are those of the job "local", and each run that saves is an attempt. In a pre-run
    nothing is loaded or saved.

    Raises ValueError when ``keep`` is below 1.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        model: torch.nn.Module,
        optimizer: Optimizers,
        *,
        keep: int = KEEP,
        **others: Stateful,
    ) -> None:
        if keep < 1:
            raise ValueError(f"keep: seen {keep}, expected at least 1")
        self._job = Path(directory) / os.environ.get(environment.JOB_UID, LOCAL_JOB)
        self._model = model
        self._optimizer = optimizer
        self._keep = keep
        self._others = others
        self._attempt: int | None = None
        self._saved_step: int | None = None

    def load(self) -> int:
        """Restore the newest valid checkpoint and return its step; 0 when there is none.

        A torn checkpoint is skipped and logged. Raises torch's errors when model or optimiser
        differ from the saved ones, and an error on all ranks when a file holds anything but tensors
        and plain values: no code in it is run.
        """
        from railwright import collectives, training_state

        found = collectives.from_rank_zero(self._newest_readable)
        if found is None:
            return 0
        checkpoint, saved_world_size = found
        folder = manifest.folder_of(self._job, checkpoint)
        training_state.load_shards(folder, self._model, self._optimizer)
        training_state.load_rank(
            folder,
            collectives.rank(),
            saved_world_size=saved_world_size,
            others=self._others,
        )
        if collectives.rank() == 0:
            channel.ask(channel.Request(resumed_from=checkpoint))
            _say(f"resumed from {_name(checkpoint)}")
            if saved_world_size != collectives.world_size():
                _say(
                    f"{saved_world_size} ranks had saved it, {collectives.world_size()} go on: "
                    "new ranks have fresh random numbers"
                )
        return checkpoint.step

    def save(self, step: int) -> None:
        """Saves all ranks' state after this step, and returns when it counts.

        Does nothing when this step was just saved. Raises AttemptRevoked on all ranks when the
        operator refuses; OSError on all ranks when any could not write; RuntimeError in a role
        outside the group that trains.
        """
        from railwright import collectives, training_state

        if environment.READ_ONLY in os.environ:
            role = os.environ.get("ROLE_NAME", "")
            raise RuntimeError(
                f"role {role} may load checkpoints, and only the group that trains saves them"
            )
        if step == self._saved_step or environment.PRE_RUN in os.environ:
            return
        with progress.phase(protocol.Phase.CHECKPOINTING):
            folder = collectives.from_rank_zero(lambda: self._begin(step))
            training_state.save_shards(folder, self._model, self._optimizer)
            files = collectives.from_all(
                lambda: manifest.described(
                    folder, training_state.save_rank(folder, collectives.rank(), self._others)
                )
            )
            permission = collectives.from_rank_zero(lambda: self._commit(step, folder, files))
        if not permission.granted:
            raise AttemptRevoked(permission.reason)
        self._saved_step = step

    def _newest_readable(self) -> tuple[protocol.Checkpoint, int] | None:
        """On rank 0: the newest whole checkpoint that may be read, and how many ranks saved it."""
        found, skipped = None, []
        for checkpoint in self._candidates():
            try:
                found = checkpoint, manifest.verified(self._job, checkpoint).world_size
                break
            except manifest.TornError as torn:
                skipped.append(
                    protocol.fitted(f"{_name(checkpoint)}: {torn}", protocol.NAME_BYTES_MAX)
                )
                _say(f"skipped {skipped[-1]}")
        if skipped:
            channel.ask(channel.Request(skipped=tuple(skipped[: protocol.SKIPPED_MAX])))
        return found

    def _candidates(self) -> Iterator[protocol.Checkpoint]:
        for cap in self._readable():
            for step in manifest.steps(self._job, cap.attempt):
                if step <= cap.step:
                    yield protocol.Checkpoint(cap.attempt, step)

    def _readable(self) -> tuple[protocol.Checkpoint, ...]:
        """Up to which step which attempts may be read, newest first."""
        resume = os.environ.get(environment.RESUME)
        if resume is not None:
            return protocol.decode(environment.Resume, resume.encode()).checkpoints
        return tuple(
            protocol.Checkpoint(attempt, protocol.STEP_MAX)
            for attempt in manifest.attempts(self._job)
        )

    def _begin(self, step: int) -> Path:
        """On rank 0: the empty folder to write to."""
        if self._attempt is None:
            newest = max(manifest.attempts(self._job), default=0)
            self._attempt = int(os.environ.get(environment.ATTEMPT, newest + 1))
            manifest.claim(self._job, self._attempt, run=environment.run_of(os.environ))
        folder = manifest.folder_of(self._job, protocol.Checkpoint(self._attempt, step))
        manifest.begin(folder)
        return folder

    def _commit(
        self, step: int, folder: Path, files: list[list[manifest.File]]
    ) -> channel.Permission:
        """On rank 0: makes the checkpoint count if this attempt still may."""
        assert self._attempt is not None, "save begins before it commits"
        contents = manifest.Manifest(
            attempt=self._attempt,
            step=step,
            world_size=len(files),
            files=tuple(file for of_rank in files for file in of_rank),
        )
        manifest.prepare(folder, contents)
        permission = channel.ask(channel.Request(commit_step=step))
        if not permission.granted:
            return permission
        manifest.publish(folder)
        committed = protocol.Checkpoint(self._attempt, step)
        channel.ask(channel.Request(committed=committed))
        # Unconfirmed, this attempt may be a revoked one: its old checkpoints are then all that a
        # later attempt is allowed to read.
        if permission.confirmed:
            older = [cap for cap in self._readable() if cap.attempt < self._attempt]
            manifest.prune(self._job, [committed, *older], keep=self._keep)
        return permission


def _name(checkpoint: protocol.Checkpoint) -> str:
    return f"attempt-{checkpoint.attempt}/step-{checkpoint.step}"


def _say(line: str) -> None:
    print(f"railwright: {line}", file=sys.stderr, flush=True)
