"""Mutants of the scheduler: of what ends attempts whose ranks hang or crash, and what ends jobs."""

from __future__ import annotations

from simulation.planted import of_scheduler

WINDOW = "return tuple(at_s for at_s in times_s if end_s - at_s < self.window_s)"

HUNTS = (
    of_scheduler(
        "hanging ranks are not found",
        "attempt/hang.py",
        "if still_s > limit_s:",
        "if False:",
        "hangs",
        1003,
    ),
    of_scheduler(
        "an announced save is a hang",
        "attempt/hang.py",
        "Activity.CHECKPOINTING: CHECKPOINTING_S,",
        "Activity.CHECKPOINTING: STILL_S,",
        "hangs",
        1007,
    ),
    of_scheduler(
        "no failure leaves the window",
        "attempt/failure_policy.py",
        WINDOW,
        "return times_s",
        "crashes",
        1016,
    ),
    of_scheduler(
        "each failure leaves the window at once",
        "attempt/failure_policy.py",
        WINDOW,
        "return ()",
        "crashes",
        1001,
    ),
    of_scheduler(
        "a failure is counted twice",
        "attempt/record.py",
        "failures=record.failures + counted,",
        "failures=record.failures + 2 * counted,",
        "crashes",
        1000,
    ),
    of_scheduler(
        "a failure takes the place of two",
        "attempt/record.py",
        "failures = policy.with_failure(failures, cause.time_s)",
        "failures = (*policy.with_failure(failures, cause.time_s), cause.time_s)",
        "crashes",
        1001,
    ),
    of_scheduler(
        "a lost node spends the budget",
        "attempt/causes.py",
        "        CauseCode.POD_REJECTED,\n",
        "        CauseCode.NODE_LOST,\n",
        "crashes",
        1012,
    ),
    of_scheduler(
        "a lost node ends the job",
        "attempt/causes.py",
        "FINAL_CAUSES = frozenset({",
        "FINAL_CAUSES = frozenset({CauseCode.NODE_LOST, ",
        "crashes",
        1012,
    ),
    of_scheduler(
        "a lost node is not named",
        "attempt/assessment.py",
        "        nodes=nodes,\n",
        "",
        "crashes",
        1012,
    ),
    of_scheduler(
        "a job succeeds when one pod has ended",
        "attempt/assessment.py",
        "if all(map(_is_well, ranks)):",
        "if any(map(_is_well, ranks)):",
        "crashes",
        1004,
    ),
)
