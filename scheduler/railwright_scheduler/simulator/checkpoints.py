"""Checkpoints of groups, in the runs that have them: what ranks save, report, and resume from.

In other runs no rank saves any. Ranks of a revoked attempt save and report as long as they run.
"""

from __future__ import annotations

from collections.abc import Sequence

from railwright_scheduler.attempt import resume_points
from railwright_scheduler.attempt.ledger import AttemptKey
from railwright_scheduler.attempt.resume_points import GroupReport, Points, ResumePoint
from railwright_scheduler.invariants import ViolationError
from railwright_scheduler.simulator.seeded_random import SeededRandom

SAVE_PERMILLE = 600
TORN_PERMILLE = 200
STEPS_MAX = 5
"""From one checkpoint to the next."""


class Checkpoints:
    """What each group of each attempt has saved and reported, drawn from a random source of its
    own. ``resumed`` counts the groups that resumed from a checkpoint."""

    def __init__(self, rng: SeededRandom | None = None) -> None:
        self._random = rng
        self._saved: dict[AttemptKey, dict[str, int]] = {}
        self._reports: dict[AttemptKey, dict[str, GroupReport]] = {}
        self.resumed = 0

    def reports(self, key: AttemptKey) -> Sequence[GroupReport]:
        """What the groups of an attempt report."""
        return tuple(self._reports.get(key, {}).values())

    def pass_time(self, key: AttemptKey, groups: Sequence[str], resume: Points) -> str:
        """The groups of this attempt, which trains, resume if they did not, and may save."""
        if self._random is None:
            return ""
        reports = self._reports.setdefault(key, {})
        for group in groups:
            if group not in reports:
                reports[group] = GroupReport(group, None, self._resume(key, group, resume))
        group = self._random.pick(groups)
        if not self._random.happens(SAVE_PERMILLE):
            return ""
        source, before = reports[group].resumed_from, reports[group].committed
        start = before if before is not None else 0 if source is None else source.step
        step = start + 1 + self._random.below(STEPS_MAX)
        self._saved.setdefault(key, {})[group] = step
        reports[group] = GroupReport(group, step, source)
        return f"{group} of {key} saves step {step}"

    def _resume(self, key: AttemptKey, group: str, resume: Points) -> ResumePoint | None:
        """The newest checkpoint that the group may read, or an older one if that is torn."""
        assert self._random is not None, key
        point = resume_points.newest(resume, group)
        if point is None:
            return None
        if point.step > self._saved.get((key[0], point.attempt), {}).get(group, -1):
            raise ViolationError(f"I26: {group} of {key} may read {point}, and never saved it")
        self.resumed += 1
        is_torn = self._random.happens(TORN_PERMILLE)
        return ResumePoint(group, point.attempt, max(0, point.step - is_torn))
