"""Why a job waits: a closed set of reasons, each with its numbers and its sentence.

Fields are plain tuples, strings and exact integers, so that two equal reasons print the same bytes.
A sentence has both numbers, what is needed and what there is, and where it can the nearest that
would work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, get_args

from railwright_scheduler.model import text
from railwright_scheduler.model.shortages import NeverFits, NotEnoughNodes
from railwright_scheduler.model.snapshot import TIERS
from railwright_scheduler.model.waiting_reason import WaitingReason
from railwright_topology.source_reports import SCALE_UP


@dataclass(frozen=True, slots=True)
class _NotFound(WaitingReason):
    """The job names an object of this ``kind`` that does not exist; ``existing`` are those that do,
    sorted."""

    advice = "Create the class, or use one that the message lists."
    unschedulable = True
    held = True
    kind: ClassVar[str]
    kinds: ClassVar[str] = "classes"

    name: str
    existing: tuple[str, ...]

    def sentence(self) -> str:
        """The reason for a person, on one line."""
        names = text.listed(self.existing)
        found = f"existing {self.kinds}: {names}" if self.existing else "there is none"
        return f"{self.kind} {self.name!r} does not exist; {found}"


class QueueNotFound(_NotFound):
    """The job names a queue that does not exist."""

    __slots__ = ()
    advice = "Create the queue, or use one that the message lists."
    held = False
    kind, kinds = "queue", "queues"


class PriorityClassNotFound(_NotFound):
    """The job names a PriorityClass that does not exist. A snapshot has priorities as numbers only,
    so the caller that builds it sets this reason."""

    __slots__ = ()
    kind = "PriorityClass"


class RuntimeClassNotFound(_NotFound):
    """A role of the job names a RuntimeClass that does not exist. A snapshot has none, so the
    caller that builds it sets this reason."""

    __slots__ = ()
    kind = "RuntimeClass"


@dataclass(frozen=True, slots=True)
class RuntimeClassRefused(WaitingReason):
    """No pod of a role can be created with this RuntimeClass, for the reason ``why``; the caller
    that builds the snapshot sets this reason."""

    advice = "Change the class or the role, as the message says."
    unschedulable = True
    held = True

    name: str
    why: str

    def sentence(self) -> str:
        """The reason for a person, on one line."""
        return f"no pod can be created with RuntimeClass {self.name!r}: {self.why}"


@dataclass(frozen=True, slots=True)
class PodNamesTaken(WaitingReason):
    """Pods that are not this job's have ``taken`` of the ``need`` names that its next attempt would
    use, ``first`` among them. The shell, which has the pods, sets this reason.
    """

    advice = (
        "Wait until those pods have ended. If their node is dead, delete its Node object, or "
        "force-delete the pods."
    )
    unschedulable = True
    held = True

    need: int
    taken: int
    first: str

    def sentence(self) -> str:
        """The reason for a person, on one line."""
        return (
            f"{self.taken} of its {text.count(self.need, 'pod name')} taken by pods of another "
            f"job of this name, or of none; first {self.first}: it starts once they are gone"
        )


@dataclass(frozen=True, slots=True)
class TierNotFound(WaitingReason):
    """The job names a tier that the network does not have; ``existing`` are its levels, the
    coarsest first."""

    advice = (
        "Use a tier that the message lists, or nearest, second or third. scale-up-domain needs "
        "scale-up domains that do not cross racks."
    )
    unschedulable = True

    tier: str
    existing: tuple[str, ...]

    def sentence(self) -> str:
        """The reason for a person, on one line."""
        if self.tier == SCALE_UP:
            return (
                f"no tier {self.tier!r}: no scale-up domains are known that nest with the "
                "network's levels; the Fabric's status lists the known ones"
            )
        if not self.existing:
            return f"no tier {self.tier!r}: of this network no levels are known"
        levels = text.listed(self.existing)
        names = ", ".join(TIERS)
        return (
            f"no tier {self.tier!r}: the network's levels are {levels}, the coarsest first; "
            f"{names} are the finest that nodes share and those around it"
        )


@dataclass(frozen=True, slots=True)
class BlockedByReservation(WaitingReason):
    """The job fits on the free nodes, but waiting jobs ahead of it have reserved some of them.

    ``position`` counts from 1 among the waiting jobs that can run; ``first`` is namespace/name of
    the first of them that reserved what this job lacks on a free node. It reserved ``first_need``
    nodes, and ``first_free`` are available to it.
    """

    advice = "Wait, or raise the priority."

    position: int
    first: str
    first_need: int
    first_free: int
    need: int
    free: int

    def sentence(self) -> str:
        """The reason for a person, on one line."""
        return (
            f"needs {text.count(self.need, 'node')} and {self.free} are available, but "
            f"{self.first} is ahead and reserved some of them: it needs "
            f"{text.count(self.first_need, 'node')} and has {self.first_free} available; "
            f"position {self.position} in the queue"
        )


@dataclass(frozen=True, slots=True)
class MappingPending(WaitingReason):
    """The job's ``need`` pods fit, and their nodes are reserved; the order of its ranks is still
    being computed."""

    advice = "Wait: after two seconds it starts without."

    need: int

    def sentence(self) -> str:
        """The reason for a person, on one line."""
        return (
            f"has reserved nodes for {text.count(self.need, 'pod')}; the order of ranks on them is "
            "being computed, for a few seconds at most"
        )


@dataclass(frozen=True, slots=True)
class BindingBacklog(WaitingReason):
    """This job's ``need`` pods fit, and ``pods`` of earlier gangs are not bound yet: the number of
    pods that are created and bound at a time is limited, as is the number of ranks that are placed
    in a cycle."""

    advice = "Wait: seconds, or as long as the API server takes for those pods."

    need: int
    pods: int

    def sentence(self) -> str:
        """The reason for a person, on one line."""
        first = "the jobs ahead of it are placed first"
        if self.pods:
            first = f"{text.count(self.pods, 'pod')} of earlier gangs are created and bound first"
        return f"its {text.count(self.need, 'pod')} would fit; {first}"


@dataclass(frozen=True, slots=True)
class LedgerFull(WaitingReason):
    """There are nodes for this job, but its ``need`` nodes do not fit into the ledger.

    Its entry takes about ``size`` bytes, entries of attempts that are ending leave ``free``, the
    whole ledger has ``limit``: if ``size`` is larger than that, the job can never start so."""

    advice = (
        "Repair the dead nodes or delete their Node objects. In the second case, use fewer "
        "replicas, or nodes with shorter names."
    )

    need: int
    size: int
    free: int
    limit: int

    @property
    def passes(self) -> bool:
        """Whether they fit once other attempts have ended."""
        return self.size <= self.limit

    def sentence(self) -> str:
        """The reason for a person, on one line."""
        limit = self.free if self.passes else self.limit
        most = self.need * limit // self.size
        fix = f"replicas of at most about {most}"
        nodes = text.count(self.need, "node")
        needed = f"the ledger needs about {self.size:,} bytes to list its {nodes}"
        if not self.passes:
            return f"{needed} and has {limit:,} in all: {fix}, or nodes with shorter names"
        return (
            f"{needed}, and attempts that are ending leave {limit:,} of {self.limit:,}: it starts "
            f"once their pods are gone, so repair or delete the nodes of these; or {fix}"
        )


@dataclass(frozen=True, slots=True)
class InternalError(WaitingReason):
    """Handling the job raised this ``error``; it is handled again after a back-off."""

    advice = (
        "Report the message and the operator's log line job handling failed as a bug. The "
        "operator tries again, at first after seconds, later every five minutes, and at once when"
        " the spec changes."
    )
    held = True

    error: str

    def sentence(self) -> str:
        """The reason for a person, on one line."""
        return (
            f"the operator failed to handle this job: {self.error}; it tries again with "
            "back-off, and other jobs are not affected"
        )


@dataclass(frozen=True, slots=True)
class TooLarge(WaitingReason):
    """The job's spec has ``size`` bytes of JSON, more than ``limit``; ``part`` of it, a path, has
    ``part_size``. The operator gives this reason."""

    advice = "Move what the message names to a ConfigMap, a volume or the image."
    unschedulable = True
    held = True

    size: int
    limit: int
    part: str
    part_size: int

    def sentence(self) -> str:
        """The reason for a person, on one line."""
        return (
            f"the job's spec has {self.size:,} bytes as JSON, at most {self.limit:,} are "
            f"taken: {self.part} has {self.part_size:,} of them; move what it holds to a "
            "ConfigMap, a volume or the image"
        )


@dataclass(frozen=True, slots=True)
class Unreadable(WaitingReason):
    """The operator cannot read the job's newest spec, for the reason ``why``. It gives this
    reason."""

    advice = "Correct the field that the message names."
    unschedulable = True
    held = True

    why: str

    def sentence(self) -> str:
        """The reason for a person, on one line."""
        return self.why


@dataclass(frozen=True, slots=True)
class NotEvaluated(WaitingReason):
    """No cycle has evaluated the job yet: it is at this ``position`` of the queue, from 1, and one
    cycle evaluates only so many jobs (``queue_window``)."""

    advice = "Wait: the next cycles continue where the last one stopped."

    position: int

    def sentence(self) -> str:
        """The reason for a person, on one line."""
        return (
            f"at position {self.position} in the queue, and not evaluated yet: one "
            "scheduling cycle evaluates only so many jobs"
        )


Reason = (
    NotEvaluated
    | QueueNotFound
    | InternalError
    | PriorityClassNotFound
    | RuntimeClassNotFound
    | RuntimeClassRefused
    | PodNamesTaken
    | TierNotFound
    | NeverFits
    | NotEnoughNodes
    | BlockedByReservation
    | MappingPending
    | BindingBacklog
    | LedgerFull
    | TooLarge
    | Unreadable
)

BY_CODE: Mapping[str, type[WaitingReason]] = {each.__name__: each for each in get_args(Reason)}
"""Reasons by their names, as conditions, events and metrics spell them."""

CODES = tuple(sorted(BY_CODE))

HELD_REASONS = tuple(each for each in get_args(Reason) if each.held)

WAITING_REASONS = tuple(each for each in get_args(Reason) if not (each.held or each.unschedulable))
"""Reasons of jobs that start once nodes, or the operator, are free: nodes are left to them."""


def code(reason: Reason) -> str:
    """The reason's name, one of ``CODES``."""
    return type(reason).__name__
