"""Mutants of the scheduler: of when a job exceeds its deadline."""

from __future__ import annotations

from simulation.planted import of_scheduler

HUNTS = (
    of_scheduler(
        "a job waits past its deadline",
        "commit_plan.py",
        "exceeds_deadline(seen, now_s=now_s) if pending.is_idle(seen) else None",
        "None",
        "deadlines",
        1123,
    ),
    of_scheduler(
        "no deadline is seen",
        "commit_plan.py",
        "if started_s is None or deadline_s is None or now_s - started_s < deadline_s:",
        "if True:",
        "deadlines",
        1003,
    ),
    of_scheduler(
        "a deadline is a second shorter",
        "commit_plan.py",
        "now_s - started_s < deadline_s",
        "now_s + 1 - started_s < deadline_s",
        "deadlines",
        1001,
    ),
    of_scheduler(
        "a suspended job's time goes on",
        "attempt/record.py",
        "phase=move(record.phase, Phase.SUSPENDED), started_s=None)",
        "phase=move(record.phase, Phase.SUSPENDED))",
        "deadlines",
        1020,
    ),
)
