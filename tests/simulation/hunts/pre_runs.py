"""Mutants of pre-runs: of what ends one, and of what its end counts for."""

from __future__ import annotations

from simulation.planted import of_scheduler

NOT_REQUESTED = """\
    if request is None:
        return Ended(_NOT_REQUESTED)
"""
GOES_ON = """\
    if request is not None:
        return Ongoing() if isinstance(verdict, Succeeded) else verdict
"""
RECORDED = """\
    if not record.live or record.phase is Phase.PROFILING:
        return record
    trains"""
RECORDED_ALWAYS = """\
    if not record.live:
        return record
    trains"""

HUNTS = (
    of_scheduler(
        "pre-runs are not judged",
        "pre_run.py",
        NOT_REQUESTED,
        GOES_ON,
        "pre-runs",
        1000,
    ),
    of_scheduler(
        "a pre-run spends budget",
        "attempt/record.py",
        "    return replace(now, pre_run=replace(held, ",
        "    now = replace(now, failures=now.failures + 1)\n"
        "    return replace(now, pre_run=replace(held, ",
        "pre-runs",
        1000,
    ),
    of_scheduler(
        "pre-runs follow for ever",
        "attempt/record.py",
        "cause.code not in causes.PRE_RUN_RETRIED or attempts >= PRE_RUNS_MAX",
        "cause.code not in causes.PRE_RUN_RETRIED",
        "pre-runs",
        1008,
    ),
    of_scheduler(
        "checkpoints of pre-runs are recorded",
        "attempt/record.py",
        RECORDED,
        RECORDED_ALWAYS,
        "pre-runs",
        1001,
    ),
)
