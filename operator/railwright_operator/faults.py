"""Faults of jobs: suspend a stage of a job with back-off after its handling raised or hung.

A plan leaves a job out of a stage that raises (``railwright_scheduler.isolation``). This module
counts and logs each fault with its traceback, and suspends the stage with back-off. A running
attempt is assessed again in every cycle, and a record is derived again: for these only the log
lines back off.

A cycle that hangs ends the process (``watchdog``). Before that the job's status gets a mark, so
that the next leader suspends that stage of the job instead of hanging too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import KW_ONLY, dataclass
from random import Random
from typing import Any

from prometheus_client import Counter

from railwright_kube.backoff import Backoff
from railwright_operator.watch.jobs import CachedJob, Jobs
from railwright_scheduler.attempt.ledger import Ledger
from railwright_scheduler.attempt.phases import FINAL
from railwright_scheduler.isolation import Handling, Isolation, Stage

logger = logging.getLogger(__name__)

RAISED_S, HUNG_S = Backoff(5.0, 300.0), Backoff(600.0, 6 * 3600.0)
"""A retry of a stage that raises costs milliseconds; of one that hangs, a change of leaders."""

STATUS = "Status"
"""The stage, in metrics, of a status that could not be rendered. It is not suspended: the reporter
tries again in every cycle, and its log lines back off."""

HANGS_MAX = 1_000

BACKED_OFF = frozenset({Stage.COMMIT, Stage.DECISION, Stage.MIGRATION})
"""The stages whose retry may wait. A pause of another stage would delay a recovery."""

CYCLE_DEADLINE_S = 10.0
"""How long a cycle may build its state and plan before the process is ended."""


WriteMark = Callable[[CachedJob, Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class _Held:
    """A suspended stage. ``generation`` is that of the job that failed: another one is tried at
    once. ``hangs`` is 0 for a stage that raised."""

    error: str
    generation: int
    failures: int
    until_s: float
    hangs: int = 0


@dataclass(eq=False, repr=False)
class JobFaults:
    """The faults of jobs and the stages that they suspend. ``clock`` is monotonic seconds."""

    jobs: Jobs
    _: KW_ONLY
    raised: Counter
    clock: Callable[[], float]
    rng: Random

    def __post_init__(self) -> None:
        self._held: dict[Handling, _Held] = {}
        self._has_read_marks = False

    def set_aside(self, ledger: Ledger) -> Mapping[Handling, str]:
        """The stages to leave out of this cycle, each with its error. The ``ledger`` may hold jobs
        that are deleted."""
        if not self._has_read_marks:
            self._has_read_marks = True
            for cached in self.jobs.all():
                self._read_mark(cached)
        if not self._held:
            return {}
        in_flight = {entry.job_uid for entry in ledger.entries}
        self._held = {
            handling: held
            for handling, held in self._held.items()
            if _is_current(held, handling, self.jobs.get(handling[1]), in_flight)
        }
        return {
            handling: held.error
            for handling, held in self._held.items()
            if self.clock() < held.until_s and (held.hangs or handling[0] in BACKED_OFF)
        }

    def record(self, isolation: Isolation) -> None:
        """Record the faults and successes of the cycle that ``set_aside`` was called for."""
        failed = {(fault.stage, fault.job_uid): fault for fault in isolation.faults}
        for handling in self._held.keys() & isolation.done - failed.keys():
            del self._held[handling]
        for handling, fault in failed.items():
            self.raised.labels(fault.stage.value).inc()
            held = self._held.get(handling)
            if held is not None and self.clock() < held.until_s:
                continue
            failures = 0 if held is None else held.failures + 1
            wait_s = RAISED_S.delay_s(failures, self.rng)
            cached = self.jobs.get(fault.job_uid)
            generation = 0 if cached is None else cached.generation
            self._held[handling] = _Held(fault.error, generation, failures, self.clock() + wait_s)
            logger.error(
                "job handling failed",
                exc_info=fault.exception,
                extra={"job_uid": fault.job_uid, "stage": fault.stage.value, "retry_in_s": wait_s},
            )

    def mark(self, job_uid: str) -> Mapping[str, Any] | None:
        """The mark on the job's status for the next leader; None if no stage hung on the job."""
        for (stage, uid), held in self._held.items():
            if uid == job_uid and held.hangs:
                return _mark(stage, held.generation, held.hangs)
        return None

    def leave_mark(self, write: WriteMark, handling: Handling) -> None:
        """Mark the job that a cycle hangs on, for the next leader. A deleted job gets no mark."""
        stage, job_uid = handling
        cached = self.jobs.get(job_uid)
        if cached is None:
            return
        before = cached.raw.get("status", {}).get("schedulingBackoff") or {}
        is_same = before.get("generation") == cached.generation
        hangs = int(before.get("hangs", 0)) if is_same else 0
        if hangs and before.get("stage") != stage.value:
            # Another stage hung before: suspend all, or each stage would end one more leader.
            stage = Stage.OBSERVATION
        write(cached, _mark(stage, cached.generation, hangs + 1))

    def _read_mark(self, cached: CachedJob) -> None:
        mark = cached.raw.get("status", {}).get("schedulingBackoff")
        stages = {stage.value: stage for stage in Stage}
        if not mark or mark.get("generation") != cached.generation or cached.record.phase in FINAL:
            return
        if (stage := stages.get(str(mark.get("stage")))) is None:
            return
        hangs = max(1, int(mark.get("hangs", 1)))
        wait_s = HUNG_S.delay_s(hangs - 1, self.rng)
        error = f"handling took more than {CYCLE_DEADLINE_S:.0f} s, and the operator restarted"
        self._held[stage, cached.uid] = _Held(
            error, cached.generation, hangs - 1, self.clock() + wait_s, hangs
        )
        logger.error(
            "job suspended after a hang",
            extra={"job_uid": cached.uid, "stage": stage.value, "retry_in_s": wait_s},
        )


def _mark(stage: Stage, generation: int, hangs: int) -> Mapping[str, Any]:
    return {"stage": stage.value, "generation": generation, "hangs": min(hangs, HANGS_MAX)}


def _is_current(
    held: _Held, handling: Handling, cached: CachedJob | None, in_flight: Collection[str]
) -> bool:
    """Whether the job is unchanged since it failed. A deleted job can only fail in its commit."""
    stage, job_uid = handling
    if cached is None:
        return stage is Stage.COMMIT and job_uid in in_flight
    return held.generation in (0, cached.generation)
