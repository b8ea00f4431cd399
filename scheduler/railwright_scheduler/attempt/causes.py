"""Why an attempt ended, as a closed set; whether that counts against the user's budget."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

MESSAGE_LENGTH_MAX = 1024
"""Characters. Conditions and events take no longer message."""

SIGNAL_LENGTH_MAX = 32
"""Characters. The kinds take no more; the longest name is far shorter."""

LAST_LINES_LENGTH_MAX = 512
"""Characters, from the end. When a shared file system goes, a thousand jobs fail at once, and the
ledger that must hold all their causes is one object of less than 1.5 MiB."""


class CauseCode(StrEnum):
    """What ended an attempt. ``assessment`` decides which counts when several are seen.

    A code of a later version is equal only to itself and in no set below: an operator that was
    rolled back keeps it.
    """

    JOB_DELETED = "JobDeleted"
    SUSPENDED = "Suspended"
    NODE_LOST = "NodeLost"
    POD_EVICTED = "PodEvicted"
    POD_DELETED = "PodDeleted"
    POD_REJECTED = "PodRejected"
    REMAPPED = "Remapped"
    OUT_OF_MEMORY = "OutOfMemory"
    RANK_FAILED = "RankFailed"
    HUNG = "Hung"
    PROFILED = "Profiled"
    NOT_PROFILED = "NotProfiled"
    IMAGE_NOT_FOUND = "ImageNotFound"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    LAUNCHER_UNHEARD = "LauncherUnheard"
    START_TIMED_OUT = "StartTimedOut"
    COMMIT_REFUSED = "CommitRefused"
    COMMIT_TIMED_OUT = "CommitTimedOut"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    STATE_UNKNOWN = "StateUnknown"

    @classmethod
    def _missing_(cls, value: object) -> CauseCode | None:
        if not isinstance(value, str) or not value:
            return None
        code = str.__new__(cls, value)
        code._name_ = code._value_ = value
        return code

    @property
    def is_known(self) -> bool:
        """Whether this version has the code."""
        return self.name in CauseCode.__members__


COUNTED = frozenset(
    {
        CauseCode.OUT_OF_MEMORY,
        CauseCode.POD_REJECTED,
        CauseCode.RANK_FAILED,
        CauseCode.START_TIMED_OUT,
    }
)
"""Causes that are the user's to mend: these and hangs in a row count against ``failurePolicy``."""

HANGS_FREE = 3
"""So many hangs without a later checkpoint between them spend no budget: the network or a device
may be at fault. A job that hangs again and again and comes no further is the user's to mend."""

FINAL_CAUSES = frozenset({CauseCode.DEADLINE_EXCEEDED, CauseCode.IMAGE_NOT_FOUND})
"""Causes that every further attempt would have too: the job fails, whatever its budget."""

NEVER_RAN = frozenset({CauseCode.COMMIT_REFUSED, CauseCode.COMMIT_TIMED_OUT})
"""Causes of attempts that never bound their whole gang; they are no restarts."""

AWAITS_PODS = frozenset({CauseCode.REMAPPED, CauseCode.PROFILED})
"""Causes after which the next attempt waits until these pods are gone, to have their nodes."""

PRE_RUN_RETRIED = frozenset(
    {CauseCode.NODE_LOST, CauseCode.POD_EVICTED, CauseCode.POD_DELETED, *NEVER_RAN}
)
"""Causes that are not the fault of a pre-run: another one follows."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One cause with its evidence. ``nodes`` are the lost ones, or those without a message while
    others sent some: while the ledger has the attempt, no pod is placed on them (``assume``) and
    their pods need not end (``pending``). The next attempt does not prefer ``node``, where a rank
    failed, and may use it. ``rank`` is that of the group. ``time_s`` is the leader's wall clock, in
    seconds since 1970, when the attempt was revoked; 0 if unknown."""

    code: CauseCode
    message: str
    nodes: tuple[str, ...] = ()
    node: str | None = None
    rank: int | None = None
    exit_code: int | None = None
    signal: str | None = None
    last_lines: str = ""
    time_s: int = 0

    @property
    def counted(self) -> bool:
        """Whether this end spends the user's budget of failures."""
        return self.code in COUNTED


def pod_deleted(node_rank: int, node: str) -> Cause:
    """The end of an attempt of which somebody deleted a pod."""
    message = f"the pod of node rank {node_rank} on {node} was deleted"
    return Cause(CauseCode.POD_DELETED, message, node=node)


def bounded(cause: Cause) -> Cause:
    """The cause with its texts cut: a message keeps its beginning, an output its end."""
    message = _sound(cause.message)
    if len(message) > MESSAGE_LENGTH_MAX:
        message = message[: MESSAGE_LENGTH_MAX - 1] + "…"
    return replace(
        cause,
        message=message,
        signal=None if cause.signal is None else _sound(cause.signal)[:SIGNAL_LENGTH_MAX],
        last_lines=_sound(cause.last_lines)[-LAST_LINES_LENGTH_MAX:],
    )


def _sound(text: str) -> str:
    """Without what JSON in UTF-8 cannot carry."""
    return text.encode("utf-8", "replace").decode("utf-8")
