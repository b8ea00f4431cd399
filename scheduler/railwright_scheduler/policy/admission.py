"""Bounds of what one decision may start: pods in flight, work of placing them, and bytes of the
ledger. A stage before nodes are selected, and one after it.

Two reasons can refuse a gang, with different effects:

    BindingBacklog   gangs decided earlier are being bound: seconds. No later job overtakes it.
    LedgerFull       its entry does not fit beside those of attempts that are ending, whose pods may
                     linger on dead nodes for days; or in any ledger. Later jobs go on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from railwright_scheduler.budget import WorkBudget
from railwright_scheduler.model.decisions import Admit
from railwright_scheduler.model.reasons import BindingBacklog, LedgerFull
from railwright_scheduler.model.snapshot import Job
from railwright_scheduler.policy import ranks
from railwright_scheduler.policy.candidate import Candidate, Effect
from railwright_scheduler.policy.mappings import Mappings

UNBOUND_MAX = 2_048
"""Pods that committing gangs together may still have to bind before another may join them; one gang
alone may have more. What an API server does in ten seconds or so: decided later, a job is placed by
what is then, and one of a higher priority need not wait behind thousands of pods.
"""

EFFORT_MAX = 512
"""What it may take to place the gangs of one decision, in nodes; one alone may take more. About two
seconds' worth."""

NAMELESS_SIZE = 4_096
"""Bytes of an entry without the names of its nodes; few have as many."""


@dataclass(frozen=True, slots=True)
class LedgerCapacity:
    """Bytes of the ledger, as ``LedgerBudget`` shares them out: it has ``limit`` in all, of which
    aborting entries leave ``free``. Committing entries have ``share`` of these together, unless one
    alone takes more, and they already take ``held``."""

    limit: int
    free: int
    share: int
    held: int

    def fits(self, size: int) -> bool:
        """Whether a committing entry of so many bytes can be added now."""
        return not (self.held and self.held + size > self.share) and self.held + size <= self.free


NO_LEDGER = LedgerCapacity(limit=1 << 60, free=1 << 60, share=1 << 60, held=0)


class Admission:
    """What the gangs of one decision may still take.

    ``pods`` of earlier gangs are not bound yet. ``capacity`` is what the ledger has for entries;
    ``size_of`` gives the bytes of one.
    """

    def __init__(
        self,
        pods: int = 0,
        capacity: LedgerCapacity = NO_LEDGER,
        size_of: Callable[[Admit], int] = lambda _: 0,
    ) -> None:
        self.pods = pods
        self._capacity = capacity
        self._size_of = size_of
        self._effort = 0
        self._is_blocked = False
        self._refused: LedgerFull | None = None

    def before(self, job: Job, effort: int, name_length: int) -> BindingBacklog | LedgerFull | None:
        """What refuses the gang wherever it is placed; None if that depends on its nodes.

        Placing a large gang is slow (``effort``), so one that cannot start is not placed if it can
        be avoided: no node's name is longer than ``name_length``, and names take about as many
        bytes as those of the gangs that ``refuse`` was called for.
        """
        if self._is_blocked or (effort and self._effort and self._effort + effort > EFFORT_MAX):
            return BindingBacklog(job.num_pods, self.pods)
        size = self._estimate(job)
        if size > self._capacity.free:
            return self._full(job, size)
        size_max = NAMELESS_SIZE + (name_length + 1) * job.num_pods
        if self._is_backlog(job) and size_max <= self._capacity.free:
            return BindingBacklog(job.num_pods, self.pods)
        return None

    def after(self, job: Job, admit: Admit) -> BindingBacklog | LedgerFull | None:
        """The refusal of the gang on these nodes; None if it is admitted."""
        size = self._size_of(admit)
        if size > self._capacity.free:
            return self._full(job, size)
        if self._is_backlog(job) or not self._capacity.fits(size):
            return BindingBacklog(job.num_pods, self.pods)
        return None

    def spend(self, effort: int) -> None:
        """Count what it took to place a gang."""
        self._effort += effort

    def take(self, admit: Admit) -> None:
        """Count a gang that starts."""
        self.pods += len(admit.nodes)
        self._capacity = replace(self._capacity, held=self._capacity.held + self._size_of(admit))

    def refuse(self, reason: BindingBacklog | LedgerFull) -> None:
        """Start nothing behind a gang that waits for the API server, or keep what the smallest gang
        takes that the ledger has no room for, to estimate others by."""
        if isinstance(reason, BindingBacklog):
            self._is_blocked = True
        elif self._refused is None or reason.need < self._refused.need:
            self._refused = reason

    def _estimate(self, job: Job) -> int:
        """About the bytes of the gang's entry, rather too few; 0 if nothing was refused."""
        refused = self._refused
        if refused is None:
            return 0
        if job.num_pods <= refused.need:
            return refused.size * job.num_pods // refused.need
        names = max(0, refused.size - NAMELESS_SIZE)
        return refused.size + names * (job.num_pods - refused.need) // refused.need

    def _is_backlog(self, job: Job) -> bool:
        return self.pods > 0 and self.pods + job.num_pods > UNBOUND_MAX

    def _full(self, job: Job, size: int) -> LedgerFull:
        return LedgerFull(job.num_pods, size, self._capacity.free, self._capacity.limit)


class BeforeSelection:
    """Refuses gangs that may not start wherever they are placed."""

    def __init__(self, admission: Admission, mappings: Mappings, name_length: int) -> None:
        self._admission = admission
        self._mappings = mappings
        self._name_length = name_length

    def check(self, candidate: Candidate, _: WorkBudget) -> Candidate:
        """The same candidate."""
        effort = placement_effort(candidate, self._mappings)
        refusal = self._admission.before(candidate.job, effort, self._name_length)
        return candidate if refusal is None else _refused(candidate, refusal)


class AfterSelection:
    """Refuses gangs whose entry has no room in the ledger."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission

    def check(self, candidate: Candidate, _: WorkBudget) -> Candidate:
        """The same candidate."""
        assert candidate.admit is not None
        refusal = self._admission.after(candidate.job, candidate.admit)
        return candidate if refusal is None else _refused(candidate, refusal)


def _refused(candidate: Candidate, reason: BindingBacklog | LedgerFull) -> Candidate:
    if isinstance(reason, BindingBacklog):
        return candidate.refused(reason, Effect.BLOCKS)
    return candidate.refused(reason, Effect.RESERVES if reason.passes else Effect.NONE)


def placement_effort(candidate: Candidate, mappings: Mappings) -> int:
    """What it takes to place the gang, in nodes; 0 once it has requested a mapping: its nodes are
    known."""
    if mappings.of(candidate.job.uid) is not None:
        return 0
    return sum(ranks.effort(demand.role) for demand in candidate.demands)
