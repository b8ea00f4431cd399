"""Handle each job on its own: an exception in the handling of one job stops no other.

A scheduling cycle runs every piece of work that concerns one job through ``Isolation.run``. If the
work raises, the job keeps what it had before that stage, the exception becomes a ``Fault`` of the
job, and the cycle goes on. The work must change nothing that other jobs see before it can no longer
raise; then their outcome is what it would be if the stage had left this job out.

The operator sets a job's stage aside for a while after a fault, so that a fault that repeats costs
little, and reads ``current`` from another thread to find the job on which a cycle hangs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

T = TypeVar("T")

ERROR_LENGTH_MAX = 256
"""Characters of an error that a status shows."""


class Stage(StrEnum):
    """A stage of the scheduling cycle that handles one job."""

    OBSERVATION = "Observation"
    AGREEMENT = "Agreement"
    COMMIT = "Commit"
    ASSESSMENT = "Assessment"
    CLEANUP = "Cleanup"
    DECISION = "Decision"
    RESERVATION = "Reservation"
    TRAFFIC = "Traffic"
    MIGRATION = "Migration"
    RECORD = "Record"


Handling = tuple[Stage, str]
"""One stage of one job, by its UID."""


@dataclass(frozen=True, slots=True)
class Fault:
    """An exception that the handling of one job raised; ``error`` is its type and message."""

    stage: Stage
    job_uid: str
    error: str
    exception: Exception = field(compare=False, repr=False)


class Isolation:
    """The faults of one cycle so far, and what is ``done``; ``set_aside`` are the stages to leave
    out, each with the error that it raised before."""

    def __init__(self, set_aside: Mapping[Handling, str] | None = None) -> None:
        self.faults: list[Fault] = []
        self.done: set[Handling] = set()
        self.current: Handling | None = None
        self._errors = dict(set_aside or {})

    def run(self, stage: Stage, job_uid: str, work: Callable[[], T], *, otherwise: T) -> T:
        """The result of ``work``; ``otherwise`` if it raises, or the stage is set aside.

        A job that could not be observed, or whose record could not be made to agree with the
        ledger, is left out of every stage.
        """
        handling = stage, job_uid
        if self.error(stage, job_uid):
            return otherwise
        around, self.current = self.current, handling
        try:
            result = work()
            self.done.add(handling)
            return result
        except Exception as exception:  # noqa: BLE001  it is kept as a fault, and logged
            text = " ".join(f"{type(exception).__name__}: {exception}".split())
            error = text[:ERROR_LENGTH_MAX]
            self.faults.append(Fault(stage, job_uid, error, exception))
            self._errors[handling] = error
            return otherwise
        finally:
            self.current = around

    def nested(self) -> Isolation:
        """One with the same stages set aside, for a decision that is made on the side."""
        return Isolation(self._errors)

    def error(self, stage: Stage, job_uid: str) -> str:
        """Why the stage was left out for this job; empty if it was not."""
        if not self._errors:
            return ""
        stages = (stage, Stage.OBSERVATION, Stage.AGREEMENT)
        errors = (self._errors.get((each, job_uid), "") for each in stages)
        return next(filter(None, errors), "")

    def unobserved(self) -> frozenset[str]:
        """The UIDs of the jobs of which nothing is known in this cycle."""
        return frozenset(uid for stage, uid in self._errors if stage is Stage.OBSERVATION)
