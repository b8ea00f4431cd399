"""Record the traffic of this rank in a few steps, if its environment enables that.

torch calls hooks around every collective of a process group, with any backend and any caller: the
script, DDP, FSDP, a pipeline. The hooks are registered for the recorded steps only. Without
profiling nothing here runs. The recording has one entry for each kind of call, whatever their
number.

The first steps are left out, as frameworks initialize in them.
"""

from __future__ import annotations

import functools
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from railwright import environment, profile, protocol, strides
from railwright.profile import Calls, Operation, Recorded

if TYPE_CHECKING:
    import torch
    from torch.distributed import ProcessGroup

SKIPPED_STEPS = 2

CPU = "cpu"

HOOK = 0x7261696C
"""The numbers of our hooks in a process group; those of others count from 0."""

_OPERATIONS = {each.replace("-", ""): each for each in Operation if each is not Operation.OTHER}
"""By torch's names without the suffixes of variants (``_VARIANT``). The calls of receivers are
recorded by their senders; a barrier carries no data."""

_VARIANT = re.compile("_(BASE|(INTO_)?(TENSOR_)?COALESCED)$|_")

logger = logging.getLogger(__name__)


def step_done(step: int) -> None:
    """Note the end of an optimiser step: start to record after the first ones, stop after the
    configured number. A failure is logged and stops the recording, not the training."""
    global _recording
    try:
        if _recording is None:
            steps = environment.whole(os.environ, environment.PROFILE_STEPS, 1, profile.STEPS_MAX)
            _recording = _Recording(steps, Path(os.environ[environment.PROFILE_FOLDER]))
        _recording.step_done(step)
    except (AttributeError, KeyError, OSError, RuntimeError, ValueError) as error:
        logger.warning("recording failed: %s", error)
        os.environ.pop(environment.PROFILE_STEPS)
        if _recording is not None:
            _recording.close()


@dataclass(slots=True)
class _Sum:
    """The totals of calls of one kind; ``timed`` are those whose end was observed."""

    calls: int = 0
    size: int = 0
    timed: int = 0
    seconds: float = 0.0


Key = tuple[tuple[strides.Run, ...], Operation, str, int | None]


class _Recording:
    """Records the calls of this rank's process groups after the first steps."""

    def __init__(self, steps: int, folder: Path) -> None:
        self._steps, self._folder = steps, folder
        self._skipped = 0
        self._first: int | None = None
        self._sums: dict[Key, _Sum] = {}
        self._open: dict[tuple[int, int], tuple[_Sum, float]] = {}
        self._hooked: list[ProcessGroup] = []
        self._lock = threading.Lock()
        self._trouble = ""
        self._on_cpu = True
        self._started_s = self._computed_s = 0.0

    def step_done(self, step: int) -> None:
        if self._first is None:
            self._skipped += 1
            if self._skipped >= SKIPPED_STEPS:
                self._first = step
                self._begin()
        elif step - self._first >= self._steps:
            took_s = time.monotonic() - self._started_s
            computed_s = time.thread_time() - self._computed_s
            self.close()
            self._hand_over(step - self._first, took_s, computed_s)
            os.environ.pop(environment.PROFILE_STEPS)

    def close(self) -> None:
        """Remove the hooks."""
        for group in self._hooked:
            group.unregister_pre_hook(HOOK)
            group.unregister_post_hook(HOOK)
        self._hooked.clear()

    def _begin(self) -> None:
        for number, (group, ranks) in enumerate(_groups().items()):
            its = strides.folded(ranks)
            called = functools.partial(self._called, number, its, ranks)
            under_way = functools.partial(self._under_way, number)
            self._hooked.append(group)
            group.register_pre_hook(HOOK, functools.partial(self._observed, called))
            group.register_post_hook(HOOK, functools.partial(self._observed, under_way))
        self._started_s, self._computed_s = time.monotonic(), time.thread_time()

    def _observed(self, take_in: Callable[[Any], None], call: Any) -> None:
        """What goes wrong with a call's recording is no matter of the call's."""
        try:
            take_in(call)
        except (AttributeError, IndexError, RuntimeError, TypeError, ValueError) as error:
            self._trouble = f"{type(error).__name__}: {error}"

    def _called(
        self, number: int, group: tuple[strides.Run, ...], ranks: list[int], call: Any
    ) -> None:
        """Record ``call``, which the group of these ranks is about to make."""
        operation = _OPERATIONS.get(_VARIANT.sub("", call.name.name).lower())
        if operation is None:
            return
        whole, part = call.input_tensors, call.output_tensors
        if operation in (Operation.ALL_GATHER, Operation.GATHER):
            whole, part = part, whole
        # Of a gather and a scatter only the root has the whole.
        tensors = whole or part
        to = ranks[call.root] if operation is Operation.SEND else None
        element = str(tensors[0].dtype).removeprefix("torch.") if tensors else "nothing"
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        with self._lock:
            self._on_cpu &= _is_on_cpu(tensors)
            its = self._sum((group, operation, element, to))
            its.calls += 1
            its.size += size
            self._open[number, call.op_id] = its, time.monotonic()

    def _sum(self, key: Key) -> _Sum:
        if key not in self._sums and len(self._sums) >= profile.CALLS_MAX:
            raise ValueError(f"more than {profile.CALLS_MAX} kinds of calls")
        return self._sums.setdefault(key, _Sum())

    def _under_way(self, number: int, call: Any) -> None:
        with self._lock:
            its, started_s = self._open.pop((number, call.op_id), (None, 0.0))
        # On other devices a call ends for the host once it is queued.
        if its is None or call.work is None or not self._on_cpu:
            return
        try:
            future = call.work.get_future()
        except RuntimeError:
            # Not every kind of work has one: gloo's between two ranks do not.
            return
        future.add_done_callback(functools.partial(self._ended, its, started_s))

    def _ended(self, its: _Sum, started_s: float, _: object) -> None:
        took_s = time.monotonic() - started_s
        with self._lock:
            its.timed += 1
            its.seconds += took_s

    def _hand_over(self, steps: int, took_s: float, computed_s: float) -> None:
        import torch.distributed as dist

        if self._trouble:
            raise ValueError(self._trouble)
        with self._lock:
            calls = tuple(
                Calls(*key[:3], its.calls, its.size, _seconds(its), key[3])
                for key, its in self._sums.items()
            )
        part = Recorded(
            rank=dist.get_rank(),
            ranks=dist.get_world_size(),
            steps=steps,
            step_s=took_s / steps,
            compute_s=computed_s / steps if self._on_cpu else None,
            calls=calls,
            device=_device(),
        )
        data = profile.encoded(part)
        profile.recorded(data)
        target = self._folder / f"rank-{part.rank}.json"
        unfinished = target.with_suffix(".part")
        unfinished.write_bytes(data)
        unfinished.replace(target)


_recording: _Recording | None = None


def _groups() -> dict[ProcessGroup, list[int]]:
    """This rank's process groups, each with its ranks. Raises ValueError where they cannot be
    listened to."""
    import torch
    import torch.distributed as dist

    if not dist.is_initialized():
        raise ValueError("there are no process groups: seen none after the first steps")
    if not hasattr(dist.ProcessGroup, "register_pre_hook"):
        seen = torch.__version__
        raise ValueError(f"seen torch {seen}, expected one whose process groups have hooks: 2.15")
    ranks_by_group = dist.distributed_c10d._world.pg_group_ranks
    return {
        group: sorted(ranks, key=ranks.__getitem__)
        for group, ranks in ranks_by_group.items()
        if isinstance(group, dist.ProcessGroup)
    }


def _device() -> str:
    """The device of this rank, by torch's name; the CPU if no device driver is initialized."""
    import torch

    kind = torch.accelerator.current_accelerator()
    if kind is None:
        return CPU
    driver = torch.get_device_module(kind)
    if not getattr(driver, "is_initialized", lambda: True)():
        return CPU
    try:
        name = str(driver.get_device_name())
    except (AttributeError, RuntimeError):
        return ""
    return protocol.fitted(name, profile.DEVICE_BYTES_MAX)


def _is_on_cpu(tensors: Iterable[torch.Tensor]) -> bool:
    return all(tensor.device.type == "cpu" for tensor in tensors)


def _seconds(its: _Sum) -> float | None:
    """Of all calls; those that have not ended yet are taken to be like the others."""
    return its.seconds * its.calls / its.timed if its.timed else None
