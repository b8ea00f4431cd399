"""What the API stores of each kind, and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from railwright_scheduler.attempt.failure_policy import FailurePolicy
from railwright_scheduler.attempt.ledger import AttemptKey, EntryRole
from railwright_scheduler.attempt.phases import FINAL
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.attempt.resume_points import Points
from railwright_scheduler.invariants import PodFact
from railwright_scheduler.model.snapshot import Amounts
from railwright_scheduler.simulator.tables import Stored

FOREIGN = ""
"""The job of a pod that is not ours."""
ORPHANED = "orphaned"
"""The job of a pod that someone made with the labels of a job that does not exist."""
OTHERS = (FOREIGN, ORPHANED)


class ReplyStatus(StrEnum):
    """How a request ended. UNKNOWN: no reply came, and it may have been carried out or not."""

    DONE = "done"
    CONFLICT = "conflict"
    EXISTS = "exists"
    MISSING = "missing"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, and the pod, or the ledger's version, that it shows, if it does."""

    status: ReplyStatus
    version: int = 0
    pod: Stored[PodFact] | None = None


LOST = Reply(ReplyStatus.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Request:
    """A write on its way: ``land`` carries it out, ``on_reply`` takes the reply.

    Requests of one ``key`` are the same one, and not sent twice at a time. ``attempt`` is the one
    whose Placement or pod it is about.
    """

    name: str
    key: object
    land: Callable[[], Reply]
    on_reply: Callable[[Reply], None]
    attempt: AttemptKey | None = None


@dataclass(frozen=True, slots=True)
class JobObject:
    """A job as it is stored, its status with it."""

    uid: str
    name: str
    roles: tuple[EntryRole, ...]
    failure_policy: FailurePolicy
    submitted_s: int
    active_deadline_s: int | None = None
    suspend: bool = False
    wants_pre_run: bool = False
    profiled: bool = False
    record: JobRecord = field(default_factory=JobRecord)

    @property
    def is_active(self) -> bool:
        """Whether the time runs that its deadline bounds."""
        is_over = self.suspend or self.record.phase in FINAL
        return self.record.started_s is not None and not is_over

    @property
    def spec_hash(self) -> str:
        """What its pods are made from."""
        roles = [(role.replicas, sorted(role.per_pod.items())) for role in self.roles]
        return f"1-{roles}"

    @property
    def num_pods(self) -> int:
        """The size of its gang."""
        return sum(role.replicas for role in self.roles)

    def amounts(self, pod: int) -> Amounts:
        """What this pod of its gang requests; a pod beyond the gang is of the last role."""
        amounts = [role.per_pod for role in self.roles for _ in range(role.replicas)]
        return amounts[min(pod, len(amounts) - 1)]


@dataclass(frozen=True, slots=True)
class NodeObject:
    """A node as it is stored; its ``capacity`` does not shrink."""

    name: str
    allocatable: Amounts
    ready: bool = True
    capacity: Amounts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlacementObject:
    """A Placement as it is stored, under the name of its job and the attempt."""

    job_uid: str
    attempt: int
    topology_hash: str
    resume: Points = ()

    @property
    def key(self) -> AttemptKey:
        """The attempt whose plan it is."""
        return self.job_uid, self.attempt
