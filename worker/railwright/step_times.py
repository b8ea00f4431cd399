"""Steps and step times of the ranks of one node, summarized for a heartbeat.

The launcher passes each report of a rank in; all times are seconds of the launcher's monotonic
clock. Step times are kept in buckets, so that a run of millions of steps needs no more memory.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Sequence

from railwright import protocol

WARM_UP_STEPS = 5
"""First steps of a rank that are not timed: they compile, tune kernels and fill caches."""

TIMED_STEPS_MIN = 5
"""The least number of timed steps for a 99th percentile."""

BUCKET_RATIO = 1.05
"""A step time is rounded up by at most 5 %."""

STEP_S_MIN = 1e-3

LENIENT = (protocol.Phase.EVALUATING, protocol.Phase.CHECKPOINTING, protocol.Phase.STARTING)
"""Phases other than training, the potentially longest first."""


class RankSteps:
    """The state of one rank, by its reports."""

    def __init__(self, rank: int, *, now_s: float) -> None:
        self.rank = rank
        self.step = 0
        self.phase = protocol.Phase.STARTING
        self.since_s = now_s
        self.has_reported = False
        self.is_finishing = False
        self.timed = 0
        self.made = 0
        self._buckets: collections.Counter[int] = collections.Counter()

    def report(self, progress: protocol.Progress, *, now_s: float) -> None:
        """Take in a report. One with the same step and phase as the last is no progress."""
        trains = progress.phase is protocol.Phase.TRAINING
        began = trains and not self.has_reported
        if (progress.step, progress.phase) == (self.step, self.phase) and not began:
            return
        if trains and self.phase is protocol.Phase.TRAINING and not began:
            self._time(now_s - self.since_s)
        self.since_s, self.step, self.phase = now_s, progress.step, progress.phase
        self.has_reported = self.has_reported or trains
        total = progress.total_steps
        self.is_finishing = total is not None and progress.step >= total

    def p99_s(self) -> float:
        """The 99th percentile of the step times, rounded up; 0.0 while too few were timed."""
        if self.timed < TIMED_STEPS_MIN:
            return 0.0
        left = self.timed - self.timed // 100
        for bucket in sorted(self._buckets):
            left -= self._buckets[bucket]
            if left <= 0:
                return float(BUCKET_RATIO**bucket)
        return 0.0

    def _time(self, took_s: float) -> None:
        self.made += 1
        if self.made > WARM_UP_STEPS:
            self.timed += 1
            bucket = math.ceil(math.log(max(took_s, STEP_S_MIN), BUCKET_RATIO))
            self._buckets[bucket] += 1


def summary(ranks: Sequence[RankSteps], *, started_s: float, now_s: float) -> protocol.Steps:
    """Summarize the running ranks for a heartbeat."""
    reporting = [rank for rank in ranks if rank.has_reported]
    # A rank that reported only once, while others report more, does not hang.
    stepping = [rank for rank in reporting if rank.made]
    none = RankSteps(0, now_s=now_s)
    # Of ranks that wait for each other, those that are behind have waited longest.
    slowest = min(stepping or reporting, key=lambda rank: rank.since_s, default=none)
    newest = max((rank.step for rank in reporting), default=0)
    there = [rank for rank in stepping or reporting if rank.step == slowest.step]
    there.sort(key=lambda rank: (rank.since_s, rank.rank))
    # Others wait while rank 0 evaluates; to them it is a long step.
    typical = max(reporting, key=lambda rank: (rank.timed, -rank.p99_s()), default=none)
    return protocol.Steps(
        newest=newest,
        slowest=slowest.step,
        ranks=tuple(rank.rank for rank in there[: protocol.RANKS_NAMED_MAX]),
        behind=sum(rank.step < newest for rank in reporting),
        reporting=len(reporting),
        still_s=now_s - max((rank.since_s for rank in ranks), default=started_s),
        lag_s=now_s - slowest.since_s if stepping else 0.0,
        timed=typical.timed,
        p99_s=typical.p99_s(),
        lag_p99_s=slowest.p99_s(),
        phase=_phase(ranks),
        finishing=any(rank.is_finishing for rank in reporting),
    )


def _phase(ranks: Sequence[RankSteps]) -> protocol.Phase:
    """The potentially longest phase of the ranks. STARTING does not count before a rank has
    reported a step."""
    stated = {
        rank.phase
        for rank in ranks
        if rank.has_reported or rank.phase is not protocol.Phase.STARTING
    }
    default = protocol.Phase.TRAINING if stated else protocol.Phase.STARTING
    return next((phase for phase in LENIENT if phase in stated), default)
