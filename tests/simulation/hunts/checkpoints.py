"""Mutants of the scheduler: of which checkpoints later attempts may read."""

from __future__ import annotations

from simulation.planted import of_scheduler

HUNTS = (
    of_scheduler(
        "late commits count",
        "attempt/record.py",
        "if not record.live or record.phase is Phase.PROFILING:",
        "if record.phase is Phase.PROFILING:",
        "checkpoints",
        1002,
    ),
    of_scheduler(
        "groups mix",
        "attempt/resume_points.py",
        "key = (committed.group, committed.attempt)",
        "committed = ResumePoint(next(iter(groups)), committed.attempt, committed.step)\n"
        "    key = (committed.group, committed.attempt)",
        "checkpoints",
        1002,
    ),
    of_scheduler(
        "unfit checkpoints stay readable",
        "attempt/resume_points.py",
        "    stays = [point for point in points if point not in unfit]\n",
        "    stays = list(points)\n",
        "checkpoints",
        1004,
    ),
)
