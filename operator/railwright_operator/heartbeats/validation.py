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
    """Why a step is implausible: it is too far ahead for one interval; empty if it is not. A script
    may go back, to an earlier checkpoint or to the first step of an epoch."""
    if after is None:
        return ""
    if before is not None:
        newest = before.step
    else:
        newest = max((point.step for its in resume.values() for point in its), default=0)
    if after.step <= newest + STEP_JUMP_MAX:
        return ""
    return f"progress.step is {after.step}, expected at most {newest + STEP_JUMP_MAX}"
