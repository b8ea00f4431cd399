"""The status of a job that has ended or that cannot be read: it stays, and a newer generation of
the job is observed. The reporter calls this."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from railwright_scheduler.attempt.phases import FINAL, Phase
from railwright_scheduler.model.reasons import Unreadable

UNREADABLE = Unreadable.__name__


def observed(before: Mapping[str, Any], *, generation: int) -> dict[str, Any]:
    """The same status of this generation. ``kubectl wait`` ignores conditions of earlier ones."""
    status = {**before, "observedGeneration": generation}
    if "conditions" in before:
        status["conditions"] = [
            {**each, "observedGeneration": generation} for each in before["conditions"]
        ]
    return status


def unreadable(before: Mapping[str, Any], *, generation: int, why: str) -> dict[str, Any]:
    """The status of a job that cannot be read: the reason alone is new, if the job has not
    ended."""
    if before.get("phase") in {phase.value for phase in FINAL}:
        return observed(before, generation=generation)
    facts = {"observedGeneration": generation, "reason": UNREADABLE, "message": why}
    return {"phase": Phase.QUEUED.value, **before, **facts}
