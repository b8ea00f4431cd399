"""Ranks that make steps, save and evaluate in simulated time, and what their launchers say of it.

The launchers' part is the product's own: reports go through ``railwright.step_times``, and what a
heartbeat says of them through the operator's conversion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from railwright import step_times, wire
from railwright_operator.heartbeats.views import RankView
from railwright_operator.witnesses import steps_seen
from railwright_scheduler.attempt.hang import Activity, Launcher, StepsSeen


@dataclass
class Node:
    """A launcher and its ranks."""

    node_rank: int
    ranks: Sequence[int]
    started_s: float = 0.0
    heard: bool = True
    stacks: tuple[wire.Stack, ...] | None = None
    steps: dict[int, step_times.RankSteps] = field(init=False)

    def __post_init__(self) -> None:
        self.steps = {rank: step_times.RankSteps(rank, now_s=self.started_s) for rank in self.ranks}

    def report(self, rank: int, at_s: float, progress: wire.Progress) -> None:
        self.steps[rank].report(progress, now_s=at_s)

    def summary(self, now_s: float) -> wire.Steps:
        """What a heartbeat at this time says."""
        ranks = list(self.steps.values())
        return step_times.summary(ranks, started_s=self.started_s, now_s=now_s)

    def launcher(self, now_s: float) -> Launcher:
        """What the scheduler sees of it if it sends a heartbeat now."""
        view = RankView(
            self.node_rank,
            f"n{self.node_rank}",
            steps=wire.decode(wire.Steps, wire.encode(self.summary(now_s))),
            stacks=self.stacks,
        )
        return Launcher(self.node_rank, view.node, heard=self.heard, steps=steps_seen(view))


def step(number: int, *, total: int | None = None) -> wire.Progress:
    return wire.Progress(number, total_steps=total)


def phase(number: int, name: wire.Phase) -> wire.Progress:
    return wire.Progress(number, phase=name)


def training(**changes: Any) -> StepsSeen:
    """A node whose ranks have made a thousand steps of a tenth of a second."""
    plain = StepsSeen(
        newest=1000,
        slowest=1000,
        reporting=2,
        timed=995,
        p99_s=0.1,
        lag_p99_s=0.1,
        activity=Activity.TRAINING,
    )
    return replace(plain, **changes)
