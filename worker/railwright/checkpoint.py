"""Checkpoints that continue bit for bit, on any number of ranks, after any interruption.

Each group of ranks has its own. All ranks of a group write their files. Then its rank 0 requests
the commit from the operator, which refuses it if the attempt was revoked. Only then the manifest is
renamed into place. Without a response within 5 s training goes on and the manifest is renamed; the
list that the operator sends to later attempts says whether they read the checkpoint.
"""

from __future__ import annotations

import contextlib
import gc
import operator
import os
import sys
import time
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex

from railwright import channel, environment, manifest, progress, protocol

if TYPE_CHECKING:
    import torch

    from railwright.training_state import Optimizers, Stateful

KEEP = 3
LOCAL_JOB = "local"

_SAVING: weakref.WeakValueDictionary[manifest.Volume, Checkpointer] = weakref.WeakValueDictionary()
"""What this process saves by, for each folder of a group."""


class AttemptRevoked(Exception):  # noqa: N818  # not an error of the script
    """Another attempt has taken over: this one may commit nothing more and should end."""


class Checkpointer:
    """Saves and loads the state of a group of ranks, such as a training run; all ranks of the group
    call it alike.

    ``directory`` is on a volume that all ranks of the job share. ``others`` are the script's own
    objects with ``state_dict`` and ``load_state_dict``, each saved for each rank: its place in the
    data, a learning rate schedule. The newest ``keep`` checkpoints stay.

    ``group`` names another group of the job: its checkpoints are loaded, those of the current
    attempt too, and ``save`` raises. Outside a Railwright job the checkpoints are those of the job
    "local", each run that saves is an attempt, and the group is torchrun's ``--role``. In a pre-run
    nothing is loaded or saved.

    Raises ValueError when ``keep`` is below 1, the job has no such ``group``, there are optimizers
    without a model, or another Checkpointer of this process saves in the same folder.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        model: torch.nn.Module | None = None,
        optimizer: Optimizers | None = (),
        *,
        keep: int = KEEP,
        group: str | None = None,
        **others: Stateful,
    ) -> None:
        if keep < 1:
            raise ValueError(f"keep: seen {keep}, expected at least 1")
        self._own = environment.group_of(os.environ)
        self._resume = environment.resume_of(os.environ)
        self._volume = manifest.Volume(
            # A script may change its working directory.
            Path(directory).absolute() / os.environ.get(environment.JOB_UID, LOCAL_JOB),
            self._own if group is None else environment.valid_group(group, os.environ),
        )
        # An iterator would be used up by the first save.
        single = hasattr(optimizer, "state_dict")
        its: tuple[Any, ...] = (optimizer,) if single else tuple(optimizer or ())  # type: ignore[arg-type]
        for each in its:
            if not hasattr(each, "param_groups"):
                raise TypeError(f"optimizer: seen {type(each)}, expected a torch.optim.Optimizer")
        if its and model is None:
            raise ValueError("optimizer: it is saved by the names of a model: pass model too")
        self._optimizer, self._model = its, model
        self._keep = keep
        self._others = others
        self._attempt: int | None = None
        self._is_claimed = False
        self._later: list[int] = []
        self._saved_step: int | None = None
        self._call: str | None = None
        if not self._follows and self._volume in _SAVING:
            gc.collect()  # A cycle may hold one that nobody has.
        if not self._follows and _SAVING.setdefault(self._volume, self) is not self:
            raise ValueError(
                f"directory: another Checkpointer of this process saves in {self._volume.job}: "
                "pass several models to one, as a torch.nn.ModuleDict, or delete the other before"
            )

    def load(self, *, after: int = -1) -> int:
        """Restore the newest valid checkpoint and return its step; 0 when there is none.

        Only checkpoints of a later step than ``after`` count, so that a script that follows another
        group loads each once. Random numbers of another group are not taken over. A torn checkpoint
        is skipped and logged. What an attempt itself saved after the checkpoint is removed.

        Raises torch's errors on all ranks when the checkpoint lacks what model or optimiser have,
        and RuntimeError when it has what the model lacks, or states of objects of other names; an
        error on all ranks when a file holds anything but tensors and plain values: no code in it
        is run; RuntimeError within another call, as of a signal handler, and with several ranks
        without torch.distributed, but each may read the checkpoints of another group alone.
        """
        from railwright import collectives

        if not self._follows:
            collectives.demand_all_ranks()
        with self._alone("load"):
            if not self._follows and self._attempt is None:
                self._take_over()
            while (contents := self._newest_whole(after)) is not None:
                checkpoint = protocol.Checkpoint(contents.attempt, contents.step)
                try:
                    self._restore(checkpoint, contents.world_size)
                except OSError:
                    if not self._is_removed(checkpoint):
                        raise
                    _log(f"{self._volume.name(checkpoint)} was removed while it was loaded")
                    continue
                self._go_back(checkpoint, after)
                self._say_where(checkpoint, contents.world_size)
                return checkpoint.step
            self._go_back(None, after)
            return 0

    def _take_over(self) -> None:
        """Take what an earlier process of this attempt saved for what this one did: a command may
        start the script again, or another script after it."""
        from railwright import collectives

        saved = collectives.from_rank_zero(self._saved_before)
        if saved is not None:
            self._attempt, self._saved_step = saved.attempt, saved.step

    def _saved_before(self) -> protocol.Checkpoint | None:
        """The newest checkpoint that was saved in this run of the attempt."""
        run, attempt = self._run(), int(os.environ.get(environment.ATTEMPT, 0))
        if not run or not manifest.is_claimed(self._volume, attempt, run=run):
            return None
        its = (protocol.Checkpoint(attempt, step) for step in self._volume.steps(attempt))
        return next(filter(self._volume.is_complete, its), None)

    def _restore(self, checkpoint: protocol.Checkpoint, saved_world_size: int) -> None:
        from railwright import collectives, training_state

        folder = self._volume.checkpoint(checkpoint)
        training_state.load_shards(folder, self._model, self._optimizer)
        collectives.from_all(
            lambda: training_state.load_rank(
                folder,
                collectives.rank(),
                saved_world_size=saved_world_size,
                others=self._others,
                is_own=not self._follows,
            )
        )

    def _go_back(self, checkpoint: protocol.Checkpoint | None, after: int) -> None:
        """Forget what this attempt saved after the checkpoint: the same steps come again."""
        from railwright import collectives

        attempt, saved = self._attempt, self._saved_step
        if self._follows or attempt is None or saved is None or saved <= after:
            return
        own = checkpoint if checkpoint is not None and checkpoint.attempt == attempt else None
        self._saved_step = None if own is None else own.step
        if collectives.rank() == 0:
            manifest.remove_later(self._volume, attempt, after=after if own is None else own.step)

    def _say_where(self, checkpoint: protocol.Checkpoint, saved_world_size: int) -> None:
        """Log and report where training goes on."""
        from railwright import collectives

        if collectives.rank() > 0:
            return
        if self._follows:
            _log(f"loaded {self._volume.name(checkpoint)}")
            return
        if checkpoint.attempt != self._attempt:
            channel.ask(channel.Request(resumed_from=checkpoint))
        _log(f"resumed from {self._volume.name(checkpoint)}")
        if saved_world_size != collectives.world_size():
            _log(
                f"{saved_world_size} ranks had saved it, {collectives.world_size()} go on: "
                "new ranks have fresh random numbers"
            )

    def save(self, step: SupportsIndex) -> None:
        """Saves all ranks' state after this step, and returns when it counts.

        Does nothing when this step was just saved. Raises AttemptRevoked on all ranks when the
        operator refuses; OSError on all ranks when any could not write; TypeError when a state
        could not be read back; RuntimeError for the checkpoints of another group, for different
        parameters of one name, within another call, as of a signal handler, and with several ranks
        without torch.distributed; TypeError or ValueError when the step is no number of a step.
        """
        from railwright import collectives

        if self._follows:
            raise RuntimeError(
                f"these are the checkpoints of group {self._volume.group}, which only its ranks "
                f"save: save those of group {self._own} with another Checkpointer, without group="
            )
        if environment.PRE_RUN in os.environ:
            return
        collectives.demand_all_ranks()
        with self._alone("save"):
            number = _same_on_all(collectives.from_all(lambda: _valid_step(step)))
            if number == self._saved_step:
                return
            began_s = time.monotonic()
            with progress.phase(protocol.Phase.CHECKPOINTING):
                self._attempt = collectives.from_rank_zero(lambda: self._begin(number))
                permission = self._write(protocol.Checkpoint(self._attempt, number), began_s)
            if not permission.granted:
                raise AttemptRevoked(permission.reason)
            self._saved_step = number

    def _write(self, checkpoint: protocol.Checkpoint, began_s: float) -> channel.Permission:
        """Write and commit. After an error what was written is removed: the disk may be full."""
        from railwright import collectives, training_state

        folder = self._volume.checkpoint(checkpoint)
        try:
            training_state.save_shards(folder, self._model, self._optimizer)
            files = collectives.from_all(
                lambda: manifest.described(
                    folder, training_state.save_rank(folder, collectives.rank(), self._others)
                )
            )
            return collectives.from_rank_zero(lambda: self._commit(checkpoint, files, began_s))
        except Exception:
            if collectives.rank() == 0:
                manifest.remove_partial(self._volume, checkpoint)
            raise

    @contextlib.contextmanager
    def _alone(self, call: str) -> Iterator[None]:
        """Refuse another call within this one: what it saves would be incomplete."""
        if self._call is not None:
            raise RuntimeError(
                f"{call} was called while {self._call} runs, expected after it: let a signal "
                "handler set a flag, and call save at the end of the step"
            )
        self._call = call
        try:
            yield
        finally:
            self._call = None

    @property
    def _follows(self) -> bool:
        """Whether the checkpoints are those of another group."""
        return self._volume.group != self._own

    def _newest_whole(self, after: int) -> manifest.Manifest | None:
        from railwright import checkpoint_search

        later = (each for each in self._candidates() if each.step > after)
        return checkpoint_search.newest_whole(self._volume, later, is_own=not self._follows)

    def _candidates(self) -> Iterator[protocol.Checkpoint]:
        for cap in self._readable():
            for step in self._volume.steps(cap.attempt):
                if step <= cap.step:
                    yield protocol.Checkpoint(cap.attempt, step)

    def _readable(self) -> tuple[protocol.Checkpoint, ...]:
        """Up to which step which attempts may be read, newest first."""
        if self._resume is None:
            attempts, last = self._volume.attempts(), protocol.STEP_MAX
            return tuple(protocol.Checkpoint(attempt, last) for attempt in attempts)
        for group in self._resume.groups:
            if group.name == self._volume.group:
                return (*self._running(group), *group.resume)
        return ()

    def _running(self, group: protocol.Group) -> tuple[protocol.Checkpoint, ...]:
        """What this process has saved in the current attempt, or all that another group saves
        there. A folder of this number may be of an earlier run of it."""
        if not self._follows:
            if self._attempt is None or self._saved_step is None:
                return ()
            return (protocol.Checkpoint(self._attempt, self._saved_step),)
        attempt = int(os.environ[environment.ATTEMPT])
        if group.run and not manifest.is_claimed(self._volume, attempt, run=group.run):
            return ()
        return (protocol.Checkpoint(attempt, protocol.STEP_MAX),)

    def _is_removed(self, checkpoint: protocol.Checkpoint) -> bool:
        """Whether its group has removed a checkpoint, on all ranks alike."""
        from railwright import collectives

        return self._follows and not collectives.from_rank_zero(
            lambda: self._volume.is_complete(checkpoint)
        )

    def _begin(self, step: int) -> int:
        """On rank 0: make the empty folder to write to, and return the attempt."""
        attempt = self._attempt
        if attempt is None:
            newest = max(self._volume.attempts(), default=0)
            attempt = int(os.environ.get(environment.ATTEMPT, newest + 1))
        if not self._is_claimed:
            manifest.claim(self._volume, attempt, run=self._run())
            for each in manifest.unread(self._volume, attempt, self._readable()):
                self._set_aside(each)
            self._later = [each for each in self._volume.attempts() if each > attempt]
            self._is_claimed = True
        manifest.begin(self._volume.checkpoint(protocol.Checkpoint(attempt, step)))
        return attempt

    def _run(self) -> str:
        """This run of the attempt. A script may set MASTER_ADDR to something else."""
        groups = () if self._resume is None else self._resume.groups
        return next((group.run for group in groups if group.name == self._own), "")

    def _commit(
        self, checkpoint: protocol.Checkpoint, files: list[list[manifest.File]], began_s: float
    ) -> channel.Permission:
        """On rank 0: makes the checkpoint count if this attempt still may."""
        contents = manifest.Manifest(
            group=self._own,
            attempt=checkpoint.attempt,
            step=checkpoint.step,
            world_size=len(files),
            files=tuple(file for of_rank in files for file in of_rank),
        )
        folder = self._volume.checkpoint(checkpoint)
        manifest.demand_all(folder, contents.files)
        manifest.prepare(folder, contents)
        permission = channel.ask(channel.Request(commit_step=checkpoint.step))
        if not permission.granted:
            return permission
        is_durable = manifest.publish(folder)
        size_bytes = min(sum(file.size_bytes for file in contents.files), protocol.SIZE_BYTES_MAX)
        saved = protocol.Saved(size_bytes, seconds=time.monotonic() - began_s)
        channel.ask(channel.Request(committed=checkpoint, saved=saved))
        if permission.confirmed:
            self._set_aside_later()
            if is_durable:
                self._prune(checkpoint)
        else:
            _log(
                f"saved {self._volume.name(checkpoint)} without a response of the operator "
                f"({permission.reason}): older checkpoints stay until there is one"
            )
        return permission

    def _set_aside_later(self) -> None:
        """On rank 0: move away what attempts after this one saved before its first save. The
        operator has just confirmed that this one is the newest: its store was restored."""
        try:
            while self._later:
                self._set_aside(self._later.pop())
        except OSError as error:
            _log(f"checkpoints of a later attempt are still in their place: {error}")

    def _set_aside(self, attempt: int) -> None:
        aside = manifest.set_aside(self._volume, attempt)
        _log(f"what attempt {attempt} had saved is in {aside}: no attempt is allowed to read it")

    def _prune(self, newest: protocol.Checkpoint) -> None:
        """On rank 0: remove old checkpoints. Not without the operator's response: this attempt may
        be a revoked one, whose old checkpoints are all that a later one is allowed to read."""
        older = [cap for cap in self._readable() if cap.attempt < newest.attempt]
        manifest.prune(self._volume, [newest, *older], keep=self._keep)


def _valid_step(step: SupportsIndex) -> int:
    """The step, also from a number of numpy's or a tensor of one. Raises TypeError, ValueError."""
    number = operator.index(step)
    if not 0 <= number <= protocol.STEP_MAX:
        raise ValueError(f"step: seen {number}, expected 0 to {protocol.STEP_MAX}")
    return number


def _same_on_all(steps: Sequence[int]) -> int:
    """Raises ValueError if ranks name different steps."""
    for rank, step in enumerate(steps):
        if step != steps[0]:
            raise ValueError(f"step: seen {steps[0]} on rank 0 and {step} on rank {rank}")
    return steps[0]


def _log(line: str) -> None:
    print(f"railwright: {line}", file=sys.stderr, flush=True)
