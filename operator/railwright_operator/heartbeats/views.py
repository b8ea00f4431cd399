"""The state of an attempt and its launchers, as values that later messages do not change."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field, fields

from railwright import protocol
from railwright_operator.heartbeats.interval import INTERVAL_S_MAX
from railwright_scheduler.model.rank_layout import RankLayout


@dataclass(frozen=True, slots=True)
class LauncherView:
    """One node rank, that is, one launcher.

    Times are monotonic seconds of this process. ``received_at_s`` is the time of the last message,
    None before the first; it does not count in comparisons. ``failed_at_s`` is when ``failure`` was
    first received. ``beat_interval_s`` is the interval in the last response, the longest if there
    was none. ``running`` and ``exited`` count its processes, those that ended with 0 included.
    ``steps`` are the last reported ones, ``stacks`` those of its last heartbeat, and ``sequence``
    is the number of that heartbeat.
    """

    node_rank: int
    node: str
    registered: bool = False
    address: str = ""
    master_port: int = 0
    received_at_s: float | None = field(default=None, compare=False)
    beat_interval_s: float = field(default=INTERVAL_S_MAX, compare=False)
    running: int = 0
    exited: int = 0
    progress: protocol.Progress | None = None
    failure: protocol.Failure | None = None
    failed_at_s: float | None = None
    resumed_from: protocol.Checkpoint | None = None
    committed: protocol.Checkpoint | None = None
    saved: protocol.Saved | None = None
    skipped: tuple[str, ...] = ()
    steps: protocol.Steps | None = None
    stacks: tuple[protocol.Stack, ...] | None = None
    pod_uid: str = field(default="", compare=False)
    sequence: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class SessionView:
    """One attempt. ``missing`` are the node ranks not at the start barrier yet, in order.

    ``started_at_s`` is when the barrier was passed, or when a heartbeat first proved it.
    ``profile`` is the merged recording of its ranks; empty before all have arrived.
    ``training_since_s``: since when no launcher has reported another phase. ``stacks_since_s``:
    since when launchers are to send the stacks of their ranks, plus the time by which their
    interval exceeds the shortest; None while they are not.
    """

    job_uid: str
    attempt: int
    layout: RankLayout
    ranks: tuple[LauncherView, ...]
    missing: tuple[int, ...]
    started_at_s: float | None
    revoked: bool
    profile: str = ""
    training_since_s: float = 0.0
    stacks_since_s: float | None = None

    @property
    def progress(self) -> protocol.Progress | None:
        """The progress of the job."""
        return None if self.reporting is None else self.reporting.progress

    @property
    def reporting(self) -> LauncherView | None:
        """The first launcher of the role that trains that reports any progress; without one, of
        its group."""
        training = (rank for rank in self.ranks if self.layout.trains(rank.node_rank))
        found = [rank for rank in training if rank.progress is not None]
        pods = self.layout.training.pods
        return min(found, key=lambda rank: rank.node_rank not in pods, default=None)

    def master_of(self, group: str) -> LauncherView | None:
        """The launcher that reports the checkpoints of a group."""
        master = self.layout.masters.get(group, len(self.ranks))
        return self.ranks[master] if master < len(self.ranks) else None


_NEWS = operator.attrgetter(
    *(
        each.name
        for each in fields(LauncherView)
        if each.compare and each.name not in ("progress", "steps")
    )
)


def is_news(before: LauncherView, after: LauncherView) -> bool:
    """Whether more than the time and the step changed."""
    if (before.progress is None) != (after.progress is None):
        return True
    return _NEWS(before) != _NEWS(after)
