"""Resume points: which checkpoints later attempts may read, for each group of ranks.

A point is recorded while its attempt is live. Once the attempt is over it never rises: what a
revoked attempt still writes is never read. It only falls, when the group finds what it holds unfit.
No group moves the points of another. The record of a job has these points, and ``record`` calls
this.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

ATTEMPTS_MAX = 16
"""Of each group the newest attempts with checkpoints."""

GROUPS_MAX = 16
"""Twice the groups of a gang: a spec that changes may rename all of them."""


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """Up to which step the checkpoints that a group saved in an attempt may be read by later
    attempts."""

    group: str
    attempt: int
    step: int


@dataclass(frozen=True, slots=True)
class GroupReport:
    """What the first rank of a group reported in the live attempt: the newest step that it
    committed or requests to commit, None if there is none, and what it resumed from."""

    group: str
    committed: int | None = None
    resumed_from: ResumePoint | None = None


Points = tuple[ResumePoint, ...]
"""The newest attempt first, and in it by group."""


def readable(points: Points, attempt: int) -> Points:
    """The points that this attempt may resume from: those of earlier ones."""
    return tuple(point for point in points if point.attempt < attempt)


def newest(points: Points, group: str) -> ResumePoint | None:
    """The point of the group's newest attempt with checkpoints; None without one."""
    return next((point for point in points if point.group == group), None)


def raised(points: Points, committed: ResumePoint, *, groups: Iterable[str]) -> Points:
    """The points after this commit. ``groups`` are those of the gang: the points of other groups
    stay as long as there is space."""
    held = {(point.group, point.attempt): point for point in points}
    key = (committed.group, committed.attempt)
    if key in held and held[key].step >= committed.step:
        return points
    found = _sorted((held | {key: committed}).values())
    kept = [*dict.fromkeys([*groups, *(point.group for point in found)])][:GROUPS_MAX]
    its = [[point for point in found if point.group == group][:ATTEMPTS_MAX] for group in kept]
    return _sorted(point for of_group in its for point in of_group)


def lowered(points: Points, source: ResumePoint, *, attempt: int) -> Points:
    """The points after this attempt resumed from ``source``: what its group saved beyond it was
    unfit, and stays unread. A source that the attempt could not read changes nothing."""
    if newest(readable(points, attempt), source.group) == source:
        # Launchers repeat their source: this is each cycle's case.
        return points
    own = [point for point in readable(points, attempt) if point.group == source.group]
    if not any(point.attempt == source.attempt and source.step <= point.step for point in own):
        return points
    unfit = {point for point in own if point.attempt >= source.attempt} - {source}
    stays = [point for point in points if point not in unfit]
    return _sorted({*stays, source})


def _sorted(points: Iterable[ResumePoint]) -> Points:
    return tuple(sorted(points, key=lambda point: (-point.attempt, point.group)))
