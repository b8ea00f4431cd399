"""Mutants of the scheduler: of how gangs are committed and aborted, and of what nodes have."""

from __future__ import annotations

from simulation.planted import of_scheduler

HUNTS = (
    of_scheduler(
        "foreign pods are not counted",
        "usage.py",
        "others = add_amounts({}, foreign)",
        "others: dict[str, int] = {}",
        "all",
        1011,
    ),
    of_scheduler(
        "a commit ends when some pods are bound",
        "attempt/gang.py",
        "all(pod.node for pod in seen.pods)",
        "any(pod.node for pod in seen.pods)",
        "all",
        1004,
    ),
    of_scheduler(
        "a commit ends before it is recorded",
        "attempt/gang.py",
        "settled = seen.recorded_attempt >= entry.attempt",
        "settled = True",
        "all",
        1054,
    ),
    of_scheduler(
        "an abort ends before it is recorded",
        "attempt/gang.py",
        "recorded = seen.recorded_end >= entry.attempt",
        "recorded = True",
        "all",
        1003,
    ),
    of_scheduler(
        "the Placement is skipped",
        "attempt/gang.py",
        "if not seen.placed:",
        "if False:",
        "all",
        1000,
    ),
    of_scheduler(
        "an attempt begins beside a live one",
        "pending.py",
        "seen.suspend or seen.record.live or seen.record",
        "seen.suspend or seen.record",
        "all",
        1003,
    ),
    of_scheduler(
        "a job that ended starts again",
        "pending.py",
        " or seen.record.phase in FINAL)",
        ")",
        "all",
        1004,
    ),
)
