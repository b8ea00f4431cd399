"""Mutants of the scheduler: of how gangs are committed and aborted, and of what is swept."""

from __future__ import annotations

from simulation.planted import of_scheduler

DELETES_FIRST = """\
        live = [pod for pod in seen.pods if not pod.terminal and not pod.deleting]
        if live:
            return Step(entry, tuple(DeletePod(entry, pod) for pod in live))
        return Step(entry.aborted(replace(cause, time_s=seen.now_s)))
"""
CREATES = "return Step(entry, tuple(CreatePod(entry, rank) for rank in missing))"
CREATES_AND_BINDS = """\
made = [pod for pod in seen.pods if not pod.node and not pod.deleting]
        return Step(
            entry,
            (*(CreatePod(entry, r) for r in missing), *(BindPod(entry, pod) for pod in made)),
        )\
"""

HUNTS = (
    of_scheduler(
        "a commit ends when some pods are bound",
        "attempt/gang.py",
        "all(pod.node for pod in seen.pods)",
        "any(pod.node for pod in seen.pods)",
        "all",
        1000,
    ),
    of_scheduler(
        "a commit ends before it is recorded",
        "attempt/gang.py",
        "settled = seen.recorded_attempt >= entry.attempt",
        "settled = True",
        "all",
        1009,
    ),
    of_scheduler(
        "an abort ends before it is recorded",
        "attempt/gang.py",
        "recorded = seen.recorded_end >= entry.attempt",
        "recorded = True",
        "all",
        1000,
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
        "deletes come before the abort",
        "attempt/gang.py",
        "        return Step(entry.aborted(replace(cause, time_s=seen.now_s)))\n",
        DELETES_FIRST,
        "all",
        1000,
    ),
    of_scheduler(
        "an abort is not written",
        "attempt/gang.py",
        "return Step(entry.aborted(replace(cause, time_s=seen.now_s)))",
        "return Step(None)",
        "all",
        1000,
    ),
    of_scheduler(
        "an abort ends while pods are going",
        "attempt/gang.py",
        "live = [pod for pod in seen.pods if not pod.terminal]",
        "live = [pod for pod in seen.pods if not pod.terminal and not pod.deleting]",
        "all",
        1000,
    ),
    of_scheduler(
        "pods are bound before all are made",
        "attempt/gang.py",
        CREATES,
        CREATES_AND_BINDS,
        "all",
        1004,
    ),
    of_scheduler(
        "live attempts are swept",
        "commit_plan.py",
        " or key in in_flight or key[1] > seen.record.ended:",
        " or key in in_flight:",
        "all",
        1000,
    ),
    of_scheduler(
        "nothing is swept",
        "commit_plan.py",
        "for key in sorted(self._state.attempts):",
        "for key in ():",
        "replacements",
        1036,
    ),
)
