"""What the demo found, as numbers, and the bars they are held against."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass

DETECT_S_MAX = 30.0
RESUME_S_MAX = 30.0
LOSS_SHARE_MAX = 0.5
ATTEMPTS = 2

Losses = Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Figures:
    """One run of the demo; None is what could not be measured. Seconds are monotonic.

    ``detect_seconds``: link down to the job's status naming the lost node. ``resume_seconds``:
    link down to the first new optimiser step. ``first_start_seconds``: attempt 1 bound to its first
    step. ``pods`` are those of one attempt.
    """

    succeeded: bool
    steps: int
    attempts: int
    detect_seconds: float | None
    resume_seconds: float | None
    first_start_seconds: float | None
    steps_redone: int | None
    checkpoint_interval_steps: int
    losses_equal_uninterrupted: bool | None
    first_loss: float | None
    final_loss: float | None
    pods: int
    nodes: int

    def line(self) -> str:
        """One JSON object, in one line; seconds to the millisecond."""
        shown = {
            name: round(value, 3) if name.endswith("_seconds") and value is not None else value
            for name, value in asdict(self).items()
        }
        return json.dumps(shown)


def redone(attempts: Mapping[int, Collection[int]]) -> int | None:
    """How many steps attempt 2 did again, from the steps each did; None if one did none."""
    if not (attempts.get(1) and attempts.get(2)):
        return None
    return max(0, max(attempts[1]) - min(attempts[2]) + 1)


def equal(attempts: Mapping[int, Losses], uninterrupted: Losses, *, steps: int) -> bool:
    """Whether each attempt's loss at each step is the uninterrupted run's, bit for bit.

    Every step from 1 to ``steps`` must have been done by both.
    """
    everything = range(1, steps + 1)
    done = {step for losses in attempts.values() for step in losses}
    return done == set(everything) == set(uninterrupted) and all(
        loss.hex() == uninterrupted[step].hex()
        for losses in attempts.values()
        for step, loss in losses.items()
    )


def missed(figures: Figures, *, simulated: bool) -> list[str]:
    """The missed bars, as text. Bars that a simulation cannot measure do not apply to it."""
    bars = [
        (figures.succeeded, "the job did not succeed"),
        (figures.attempts == ATTEMPTS, f"{figures.attempts} attempts, expected {ATTEMPTS}"),
        (
            _within(figures.detect_seconds, DETECT_S_MAX),
            f"detect_seconds is {figures.detect_seconds}, at most {DETECT_S_MAX:g}",
        ),
        (
            _within(figures.steps_redone, figures.checkpoint_interval_steps),
            f"steps_redone is {figures.steps_redone}, at most {figures.checkpoint_interval_steps}",
        ),
    ]
    if not simulated:
        bars += _bars_of_training(figures)
    return [words for holds, words in bars if not holds]


def _bars_of_training(figures: Figures) -> list[tuple[bool, str]]:
    resume_s_max = RESUME_S_MAX + (figures.first_start_seconds or 0.0)
    share = None
    if figures.first_loss and figures.final_loss is not None:
        share = figures.final_loss / figures.first_loss
    return [
        (figures.first_start_seconds is not None, "the first start was not seen"),
        (
            _within(figures.resume_seconds, resume_s_max),
            f"resume_seconds is {figures.resume_seconds}, at most {RESUME_S_MAX:g} + "
            f"first_start_seconds = {resume_s_max:.1f}",
        ),
        (
            figures.losses_equal_uninterrupted is True,
            "the losses are not those of the uninterrupted run",
        ),
        (
            _within(share, LOSS_SHARE_MAX),
            f"the final loss {figures.final_loss} is more than half of the first, "
            f"{figures.first_loss}",
        ),
    ]


def _within(value: float | None, most: float) -> bool:
    return value is not None and value <= most
