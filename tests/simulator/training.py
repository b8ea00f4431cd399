"""What the ranks of an attempt do: they make steps together, save, hang, crash, and end."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from railwright import protocol

STEP_S = 2.0
CHECKPOINT_STEPS = 5
EXIT_RESET = 1
AttemptKey = tuple[str, int]
Read = Callable[[str, Sequence[protocol.Checkpoint]], protocol.Checkpoint | None]
"""The checkpoint that a group loads of those that it may."""


@dataclass(slots=True)
class Training:
    """The ranks of one attempt.

    ``size`` is the number of its pods, ``started`` those past the barrier, ``ended`` those whose
    ranks have ended with 0; ``masters`` are the node ranks that commit, by group. ``committed`` is
    the newest checkpoint of each group, ``resumed`` what it read, ``recorded`` are the ranks whose
    recordings were sent. ``crashed``: a rank failed by itself. ``reset`` are the ranks that fail
    because another one was ended, and ``terminated_s`` is when SIGTERM first ended one.
    """

    key: AttemptKey
    size: int
    total_steps: int
    step: int = 0
    moved_s: float = 0.0
    started: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)
    masters: dict[str, int] = field(default_factory=dict)
    committed: dict[str, protocol.Checkpoint] = field(default_factory=dict)
    resumed: dict[str, protocol.Checkpoint] = field(default_factory=dict)
    hung_since_s: float | None = None
    saving_until_s: float = 0.0
    failing: dict[int, int] = field(default_factory=dict)
    recorded: set[int] = field(default_factory=set)
    crashed: bool = False
    terminated_s: float = -math.inf
    reset: set[int] = field(default_factory=set)

    def start(self, node_rank: int, world: protocol.WorldInfo, *, now_s: float, read: Read) -> None:
        """A rank passes the barrier, and reads a checkpoint of its group."""
        if not self.started:
            self.moved_s = now_s
        self.started.add(node_rank)
        if world.group_rank == 0:
            self.masters[world.group] = node_rank
        resume = next((g.resume for g in world.groups if g.name == world.group), ())
        source = read(world.group, resume) if world.group not in self.resumed else None
        if source is not None:
            self.resumed[world.group] = source
            self.step = max(self.step, source.step)

    def take_failure(self, node_rank: int) -> int | None:
        """The exit code of a rank that fails now."""
        exit_code = self.failing.pop(node_rank, None)
        self.crashed |= exit_code is not None
        return exit_code or (EXIT_RESET if node_rank in self.reset else None)

    def terminate(self, *, now_s: float) -> None:
        """SIGTERM has ended a rank."""
        self.terminated_s = now_s if self.terminated_s == -math.inf else self.terminated_s

    @property
    def steps_made(self) -> int:
        """How many steps this attempt made."""
        return self.step - max((point.step for point in self.resumed.values()), default=0)

    @property
    def is_complete(self) -> bool:
        """Whether all ranks are past the barrier and none has ended."""
        return len(self.started) == self.size and not self.ended

    @property
    def is_over(self) -> bool:
        """Whether all steps were made."""
        return self.step >= self.total_steps

    def make_step(self, *, now_s: float) -> None:
        """Make the step that is due."""
        stops = self.hung_since_s is not None or now_s < self.saving_until_s or self.failing
        if not self.is_complete or stops or self.is_over or now_s - self.moved_s < STEP_S:
            return
        self.step += 1
        self.moved_s = now_s

    def due_commit(self, node_rank: int) -> str | None:
        """The group for which this node rank has a checkpoint to commit now."""
        for group, master in self.masters.items():
            held = self.committed.get(group) or self.resumed.get(group)
            is_new = held is None or held.step < self.step
            if master == node_rank and self.step and self.step % CHECKPOINT_STEPS == 0 and is_new:
                return group
        return None

    def steps(self, first_rank: int, *, now_s: float) -> protocol.Steps:
        """The report of a launcher about its ranks."""
        saves = now_s < self.saving_until_s
        changed_s = self.moved_s if saves else max(self.moved_s, self.saving_until_s)
        return protocol.Steps(
            newest=self.step,
            slowest=self.step,
            ranks=(first_rank,),
            behind=0,
            reporting=1,
            still_s=max(0.0, now_s - changed_s),
            lag_s=0.0,
            timed=100,
            p99_s=STEP_S,
            lag_p99_s=STEP_S,
            phase=protocol.Phase.CHECKPOINTING if saves else protocol.Phase.TRAINING,
            finishing=self.is_over,
        )
