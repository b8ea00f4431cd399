"""How far a rank is, told to its launcher. Training never waits for it."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import threading
from collections.abc import Iterator
from typing import SupportsFloat

from railwright import channel, environment, wire

FINITE_MAX = 1e300


class _Reporter:
    """This process's newest progress, and how often telling it did not work."""

    def __init__(self) -> None:
        self.newest = wire.Progress(step=0, phase=wire.Phase.STARTING)
        self._dropped = 0
        self._lock = threading.Lock()

    def send(self, progress: wire.Progress) -> None:
        rank = os.environ.get("RANK", "0")
        with self._lock:
            self.newest = progress
            report = channel.Report(
                rank=int(rank) if rank.isdecimal() else 0, progress=progress, dropped=self._dropped
            )
            if not channel.send(report):
                self._dropped += 1


_reporter = _Reporter()


def report(
    step: int,
    loss: SupportsFloat | None = None,
    *,
    samples_per_s: SupportsFloat | None = None,
    total_steps: int | None = None,
) -> None:
    """Tells that this optimiser step is done, of how many, and how well.

    ``loss`` may be a tensor of one element; what is not finite is told as unknown.
    ``total_steps`` given once is remembered. When reports come faster than they are read, the
    newest are dropped. Raises TypeError or ValueError for what is no number.
    """
    _reporter.send(
        wire.Progress(
            step=int(step),
            total_steps=_reporter.newest.total_steps if total_steps is None else total_steps,
            loss=_finite(loss),
            samples_per_s=_finite(samples_per_s),
            phase=wire.Phase.TRAINING,
        )
    )
    if environment.PROFILE_STEPS in os.environ:
        from railwright import prerun

        prerun.step_done(int(step))


@contextlib.contextmanager
def phase(name: wire.Phase) -> Iterator[None]:
    """Tells what the script does while in the block, for example Phase.EVALUATING."""
    before = _reporter.newest.phase
    _reporter.send(dataclasses.replace(_reporter.newest, phase=wire.Phase(name)))
    try:
        yield
    finally:
        _reporter.send(dataclasses.replace(_reporter.newest, phase=before))


def _finite(value: SupportsFloat | None) -> float | None:
    number = math.nan if value is None else float(value)
    return number if abs(number) <= FINITE_MAX else None
