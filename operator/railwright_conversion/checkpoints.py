"""Resume points: objects in a status and in a Placement, values in the scheduler."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from railwright_scheduler.attempt.resume_points import ResumePoint


def parse(point: Mapping[str, Any]) -> ResumePoint:
    """The resume point in an object. Raises KeyError for what is none."""
    return ResumePoint(point["group"], point["attempt"], point["step"])


def render(point: ResumePoint) -> dict[str, Any]:
    """The resume point as objects have it."""
    return {"group": point.group, "attempt": point.attempt, "step": point.step}


def render_over(
    held: Iterable[Mapping[str, Any]], points: Iterable[ResumePoint]
) -> list[dict[str, Any]]:
    """The resume points as an object has them that has ``held``: those in it keep the fields of a
    later version."""
    before = {(each.get("group"), each.get("attempt"), each.get("step")): each for each in held}
    return [
        {**before.get((point.group, point.attempt, point.step), {}), **render(point)}
        for point in points
    ]
