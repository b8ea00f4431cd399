"""Resume points: objects in a status and in a Placement, values in the scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from railwright_scheduler.attempt.resume_points import ResumePoint


def parse(point: Mapping[str, Any]) -> ResumePoint:
    """The resume point in an object. Raises KeyError for what is none."""
    return ResumePoint(point["group"], point["attempt"], point["step"])


def render(point: ResumePoint) -> dict[str, Any]:
    """The resume point as objects have it."""
    return {"group": point.group, "attempt": point.attempt, "step": point.step}
