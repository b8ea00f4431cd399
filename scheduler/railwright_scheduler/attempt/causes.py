"""Why an attempt ended, as a closed set; whether that counts against the user's budget."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CauseCode(StrEnum):
    """What ended an attempt. The order is the order of precedence when several are seen."""

    JOB_DELETED = "JobDeleted"
    SUSPENDED = "Suspended"
    NODE_LOST = "NodeLost"
    POD_EVICTED = "PodEvicted"
    POD_DELETED = "PodDeleted"
    REMAPPED = "Remapped"
    OUT_OF_MEMORY = "OutOfMemory"
    RANK_FAILED = "RankFailed"
    START_TIMED_OUT = "StartTimedOut"
    COMMIT_REFUSED = "CommitRefused"
    COMMIT_TIMED_OUT = "CommitTimedOut"


COUNTED = frozenset({CauseCode.OUT_OF_MEMORY, CauseCode.RANK_FAILED, CauseCode.START_TIMED_OUT})
"""Causes that are the user's to mend; only these spend ``backoffLimit``."""

NEVER_RAN = frozenset({CauseCode.COMMIT_REFUSED, CauseCode.COMMIT_TIMED_OUT})
"""Causes of attempts that never bound their whole gang; they are no restarts."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One cause with its evidence. ``nodes`` are those found lost; ``rank`` is a global rank."""

    code: CauseCode
    message: str
    nodes: tuple[str, ...] = ()
    node: str | None = None
    rank: int | None = None
    exit_code: int | None = None
    signal: str | None = None
    last_lines: str = ""

    @property
    def counted(self) -> bool:
        """Whether this end spends the user's budget of failures."""
        return self.code in COUNTED
