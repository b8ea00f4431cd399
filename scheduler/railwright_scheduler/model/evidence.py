"""What is observed of a running attempt: a row for each of its node ranks.

The operator builds the rows, and `attempt.assessment` and what it calls decide by them. A signal of
a launcher is a field here. Ages are in seconds of one monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

SILENT_S = 6.0
"""Three intervals of two seconds: after this a launcher with the shortest one is suspected."""

UNREADY_S = 40.0
"""How long a node may be unready before it is lost, if its launcher never sent a message, or if its
kubelet says so itself: a runtime that starts again takes seconds. After an outage of the API server
a kubelet renews its lease within 17 s, and reports that it is Ready within 10 s more."""


class PodState(StrEnum):
    """A pod's phase; MISSING when the API has no such pod."""

    MISSING = "Missing"
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class Activity(StrEnum):
    """The reported activity of ranks."""

    STARTING = "Starting"
    TRAINING = "Training"
    EVALUATING = "Evaluating"
    CHECKPOINTING = "Checkpointing"


@dataclass(frozen=True, slots=True)
class Crash:
    """A rank that ended badly: from its launcher's report, or from the pod's status.

    ``out_of_memory``: the kernel killed it for memory; ``memory_limit`` is in bytes, None if there
    is no limit.
    """

    rank: int
    exit_code: int
    age_s: float
    signal: str | None = None
    message: str = ""
    last_lines: str = ""
    out_of_memory: bool = False
    memory_limit: int | None = None


@dataclass(frozen=True, slots=True)
class ObservedStack:
    """The equal stack of ``count`` ranks of a node, the first of them in ``ranks``: their frames,
    or the state of their process if they did not respond."""

    ranks: tuple[int, ...]
    count: int
    answered: bool
    text: str


@dataclass(frozen=True, slots=True)
class ObservedSteps:
    """The steps of the ranks of one node, as their launcher reports them.

    ``newest`` is the highest step of any rank. ``slowest`` is the step of the rank without progress
    for the longest time, ``ranks`` are the first ones at that step, and ``lag_s`` is that time; 0
    before the first step. ``behind`` ranks are below ``newest``; ``reporting`` ranks have reported
    a step. ``still_s``: since any rank made a step or changed its phase, or since the start. Of the
    ``timed`` steps of the rank with the most steps, 99 % took ``p99_s`` or less; of those of the
    slowest rank ``lag_p99_s``; 0 while too few were timed. ``finishing``: a rank made its last
    step. ``stacks``: None before a request.
    """

    newest: int = 0
    slowest: int = 0
    ranks: tuple[int, ...] = ()
    behind: int = 0
    reporting: int = 0
    still_s: float = 0
    lag_s: float = 0
    timed: int = 0
    p99_s: float = 0
    lag_p99_s: float = 0
    activity: Activity = Activity.STARTING
    finishing: bool = False
    stacks: tuple[ObservedStack, ...] | None = None


@dataclass(frozen=True, slots=True)
class ObservedImages:
    """The images of one pod, by its kubelet.

    ``pulling`` is the image that is being pulled since ``since`` (RFC 3339), empty if none is.
    ``pulled_s``: since the last pull ended, or since one that goes on should have; 0 while one goes
    on for less than ``PULL_DEADLINE_S``; None where no pull was reported.
    ``missing_s``: for how long the registry has reported that it does not have an image; None if
    it has not.
    """

    pulling: str = ""
    since: str = ""
    pulled_s: float | None = None
    missing_s: float | None = None


NO_REPORT = ObservedImages()


@dataclass(frozen=True, slots=True)
class ObservedRank:
    """One node rank of a running attempt, by all sources.

    ``done``: its launcher, or its main container's exit code, reported success.
    ``silent_s``: since the last message of its launcher, or since the start of this leader if that
    has received none (``unreported``); None before any message was due.
    ``silence_limit_s``: the silence after which it is suspected.
    ``lease_stale``: its kubelet missed a renewal, by two reads of its Lease.
    ``unready_s``: for how long its node has not been Ready; None while it is, and for ``UNREADY_S``
    if its kubelet says so itself. After ``UNREADY_S`` the node is lost if its launcher never sent a
    message.
    ``out_of_service``: Kubernetes' taint declares that its node is off.
    ``waiting``: why its container does not start, such as "ImagePullBackOff: …".
    ``node_gone``: its node was deleted.
    ``evicted``: the reason of the pod's condition DisruptionTarget.
    ``steps``: the last reported steps of its ranks; None before a report.
    ``images``: the image pulls of its pod, as its kubelet reports them.
    ``trains``: it is of the group whose progress is that of the job. ``role`` is empty if the job
    has one role.
    """

    node_rank: int
    node: str
    pod: PodState
    deleting: bool = False
    done: bool = False
    crash: Crash | None = None
    silent_s: float | None = None
    unreported: bool = False
    silence_limit_s: float = SILENT_S
    lease_stale: bool = False
    node_gone: bool = False
    unready_s: float | None = None
    out_of_service: bool = False
    waiting: str = ""
    evicted: str = ""
    steps: ObservedSteps | None = None
    trains: bool = True
    role: str = ""
    images: ObservedImages = NO_REPORT

    @property
    def responsive(self) -> bool:
        """Whether its launcher sent a message in the last seconds."""
        return self.silent_s is not None and self.silent_s <= self.silence_limit_s
