"""Report the progress of a rank to its launcher. No step waits for the launcher, and a change of
phase waits a second at most."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import SupportsFloat

from railwright import channel, environment, protocol


class _Reporter:
    """The newest progress of this process, and the number of reports that failed."""

    def __init__(self) -> None:
        self.newest = protocol.Progress(step=0, phase=protocol.Phase.STARTING)
        self._open: list[protocol.Phase] = []
        self._outside = protocol.Phase.STARTING
        self._dropped = 0
        self._stacks_pid: int | None = None
        # A signal handler of the script may report, or save, within a report.
        self._lock = threading.RLock()

    def report(self, progress: protocol.Progress) -> None:
        """Send a step; in a phase it is one of that phase."""
        with self._lock:
            if not self._open:
                self._outside = progress.phase
            self._send(dataclasses.replace(progress, phase=self._phase()))

    def enter(self, phase: protocol.Phase) -> None:
        """Send that a phase begins."""
        with self._lock:
            self._open.append(phase)
            self._send(dataclasses.replace(self.newest, phase=self._phase()))

    def leave(self, phase: protocol.Phase) -> None:
        """Send what the script is back to. Phases of other threads may have begun later."""
        with self._lock:
            self._open.reverse()
            self._open.remove(phase)
            self._open.reverse()
            self._send(dataclasses.replace(self.newest, phase=self._phase()))

    def _phase(self) -> protocol.Phase:
        return self._open[-1] if self._open else self._outside

    def _send(self, progress: protocol.Progress) -> None:
        rank = os.environ.get("RANK", "0")
        changes = progress.phase is not self.newest.phase
        self.newest = progress
        report = channel.Report(
            rank=int(rank) if rank.isdecimal() else 0,
            progress=progress,
            dropped=self._dropped,
            pid=self._pid(),
        )
        if not channel.send(report, timeout_s=channel.PHASE_TIMEOUT_S if changes else 0.0):
            self._dropped += 1

    def _pid(self) -> int:
        """The PID of this process if it can show its stacks; a forked child cannot."""
        folder = os.environ.get(environment.CHANNEL)
        if folder is None:
            return 0
        if self._stacks_pid is None:
            # Its signal is Linux's; a script runs elsewhere too.
            from railwright import stacks

            self._stacks_pid = os.getpid() if stacks.register(Path(folder)) else 0
        return self._stacks_pid if self._stacks_pid == os.getpid() else 0


_reporter = _Reporter()


def report(
    step: int,
    loss: SupportsFloat | None = None,
    *,
    samples_per_s: SupportsFloat | None = None,
    total_steps: int | None = None,
) -> None:
    """Report that this optimiser step is done, with its loss and the total number of steps.

    ``loss`` may be a tensor of one element; a value that is not finite is reported as unknown.
    ``total_steps`` needs to be given only once; -1 stands for none. When reports come faster than
    they are read, the newest are dropped. Raises TypeError or ValueError for anything but a number.
    """
    _reporter.report(
        protocol.Progress(
            step=int(step),
            total_steps=_reporter.newest.total_steps
            if total_steps is None
            else _total(int(total_steps)),
            loss=_finite(loss),
            samples_per_s=_finite(samples_per_s),
            phase=protocol.Phase.TRAINING,
        )
    )
    if environment.PROFILE_STEPS in os.environ:
        from railwright import prerun

        prerun.step_done(int(step))


@contextlib.contextmanager
def phase(name: protocol.Phase) -> Iterator[None]:
    """Report the phase of the script while in the block, for example Phase.EVALUATING. Steps that
    are reported in the block do not end the phase."""
    entered = protocol.Phase(name)
    _reporter.enter(entered)
    try:
        yield
    finally:
        _reporter.leave(entered)


def _total(steps: int) -> int | None:
    """None for what is no number of steps: other libraries have -1 where there is none."""
    return steps if 0 <= steps <= protocol.STEP_MAX else None


def _finite(value: SupportsFloat | None) -> float | None:
    number = math.nan if value is None else float(value)
    return number if abs(number) <= protocol.FLOAT_MAX else None
