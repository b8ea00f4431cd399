"""Which steps a heartbeat cannot report. The sessions refuse it."""

from __future__ import annotations

from collections.abc import Mapping

from railwright import protocol

STEP_JUMP_MAX = 10**9

ResumeLists = Mapping[str, tuple[protocol.Checkpoint, ...]]
"""For each group up to which step it may read which earlier attempt, the newest first."""


def unlikely_step(
    resume: ResumeLists, before: protocol.Progress | None, after: protocol.Progress | None
) -> str:
    """Why a step is implausible: it went back, or too far for one interval; empty if it is not."""
    if after is None:
        return ""
    floor = newest = 0 if before is None else before.step
    if before is None:
        newest = max((point.step for its in resume.values() for point in its), default=0)
    if floor <= after.step <= newest + STEP_JUMP_MAX:
        return ""
    return f"progress.step is {after.step}, expected {floor} to {newest + STEP_JUMP_MAX}"
