"""Mutants of the scheduler: of which jobs get an attempt, and of what cancels one."""

from __future__ import annotations

from simulation.planted import of_scheduler

HUNTS = (
    of_scheduler(
        "an attempt begins beside a live one",
        "pending.py",
        "seen.suspend or seen.record.live or seen.record",
        "seen.suspend or seen.record",
        "all",
        1000,
    ),
    of_scheduler(
        "a job that ended starts again",
        "pending.py",
        " or seen.record.phase in FINAL)",
        ")",
        "all",
        1004,
    ),
    of_scheduler(
        "a suspended job starts",
        "pending.py",
        "return not (seen.suspend or seen.record.live",
        "return not (seen.record.live",
        "changes",
        1003,
    ),
    of_scheduler(
        "an attempt's number is used again",
        "pending.py",
        "attempt=seen.record.attempt + 1",
        "attempt=max(seen.record.attempt, 1)",
        "all",
        1000,
    ),
    of_scheduler(
        "the commit of a deleted job goes on",
        "commit_plan.py",
        "return _DELETED",
        "return None",
        "replacements",
        1001,
    ),
    of_scheduler(
        "a cut is taken for dead nodes",
        "attempt/breaker.py",
        "is_cut = len(silent) > len(alive)",
        "is_cut = False",
        "cuts",
        1000,
    ),
    of_scheduler(
        "running attempts are not judged",
        "plan.py",
        "    assert len(seen.ranks) == len(seen.record.nodes) > 0, seen.job.uid\n",
        "    return None\n",
        "all",
        1000,
    ),
)
