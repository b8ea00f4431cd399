"""The scheduling queue: the order of the jobs, which start now, and which nodes others reserve.

One order goes through all queues, so that no job is overtaken forever.

``evaluate`` takes one job through the stages and changes nothing; ``apply`` applies the verdict. So
a job whose evaluation raises does not affect later jobs. The stages, in order:

    existing queues   the queue of the job exists (``queues``)
    constraints       topology constraints name levels that exist
    feasibility       the cluster, empty and healthy, could run each role
    free nodes        each role by itself fits on the free nodes that are not reserved
    admission         how much one cycle may start
    gang placement    nodes for the whole gang, and the node of each rank, once these are mapped
    ledger            room for its entry (``admission``)

A refused job reserves nodes if it could start once others end (``reservation``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from railwright_scheduler.arrays import Ints
from railwright_scheduler.budget import PLACEMENT_WORK, WorkBudget
from railwright_scheduler.cluster import Capacity, Cluster
from railwright_scheduler.isolation import Isolation
from railwright_scheduler.model.reasons import BindingBacklog, LedgerFull, Reason
from railwright_scheduler.model.snapshot import Job, QueuePosition, Snapshot, sending_job
from railwright_scheduler.policy.admission import (
    Admission,
    AfterSelection,
    BeforeSelection,
    placement_effort,
)
from railwright_scheduler.policy.candidate import Candidate, DecisionStage, Effect
from railwright_scheduler.policy.constraints import ConstraintResolver
from railwright_scheduler.policy.feasibility import Feasibility
from railwright_scheduler.policy.free_nodes import FreeNodes
from railwright_scheduler.policy.gang_placement import GangPlacer
from railwright_scheduler.policy.link_traffic import Traffic
from railwright_scheduler.policy.mappings import Mappings
from railwright_scheduler.policy.queues import ExistingQueues
from railwright_scheduler.policy.reservation import Reservations
from railwright_scheduler.policy.selection import NodeSelector


def by_priority(jobs: Iterable[Job]) -> list[Job]:
    """Sort by priority (high first), then by age (old first), then by uid."""
    return sorted(jobs, key=position)


def position(job: Job) -> QueuePosition:
    """Where the job is in the queue."""
    return -job.priority, job.submitted_s, job.uid


class Verdict(NamedTuple):
    """What the stages found. A refused job has the ``reserved`` nodes (columns) of each role, if it
    has any; ``free`` is how many nodes it could have now without the reservations of others.
    ``work`` is what the verdict took, ``searched`` the work of searches for gangs of several
    roles."""

    candidate: Candidate
    work: int
    searched: int
    reserved: tuple[Ints, ...] = ()
    free: int = 0


class SchedulingQueue:
    """The capacity that jobs have taken and reserved so far in this cycle."""

    def __init__(
        self,
        snapshot: Snapshot,
        cluster: Cluster,
        *,
        isolation: Isolation,
        admission: Admission,
        traffic_work: WorkBudget,
        mappings: Mappings,
    ) -> None:
        self._admission = admission
        self._mappings = mappings
        self._capacity = Capacity(cluster)
        self._traffic = Traffic(cluster, snapshot.senders, isolation, traffic_work)
        selector = NodeSelector(cluster, self._capacity, self._traffic)
        self._reservations = Reservations(
            cluster, self._capacity, selector.select, previous=snapshot.reserved
        )
        self._free_nodes = FreeNodes(cluster, self._capacity, selector, self._reservations)
        name_length = max((len(node.name) for node in cluster.nodes), default=0)
        self._stages: tuple[DecisionStage, ...] = (
            ExistingQueues(snapshot.queues),
            ConstraintResolver(cluster),
            Feasibility(cluster),
            self._free_nodes,
            BeforeSelection(admission, mappings, name_length),
            GangPlacer(cluster, selector, self._free_nodes, self._reservations, mappings),
            AfterSelection(admission),
        )
        self._work_left = PLACEMENT_WORK
        self.starts = 0

    @property
    def reservations(self) -> Mapping[str, tuple[str, ...]]:
        """The names of the nodes that each waiting job has reserved, by its UID."""
        return self._reservations.by_job

    def evaluate(self, job: Job, *, awaits_own_pods: bool) -> Verdict:
        """Decide about one job, or reserve for one that ``awaits_own_pods``."""
        work = WorkBudget(self._work_left)
        candidate = Candidate(job, awaits_own_pods)
        for stage in self._stages:
            candidate = stage.check(candidate, work)
            if candidate.refusal is not None:
                break
        if candidate.refusal is None or candidate.refusal.effect is not Effect.RESERVES:
            return Verdict(candidate, work.spent, work.searched)
        nodes = candidate.reserved
        if nodes is None:
            nodes = self._reservations.choose(
                job, candidate.demands, work, awaits_own_pods=awaits_own_pods
            )
        free = self._free_nodes.count(candidate, nodes)
        return Verdict(candidate, work.spent, work.searched, nodes, free)

    def apply(self, verdict: Verdict) -> None:
        """Take over what was decided."""
        candidate = verdict.candidate
        self._work_left -= verdict.work
        if candidate.admit is not None and candidate.refusal is None:
            self._start(candidate)
        elif candidate.refusal is not None:
            if candidate.mapping is not None:
                self._admission.spend(placement_effort(candidate, self._mappings))
                self._mappings.requested[candidate.job.uid] = candidate.mapping
            if isinstance(candidate.refusal.reason, BindingBacklog | LedgerFull):
                # Its nodes are not the reason: to map them again in each cycle would delay others.
                self._mappings.keep(candidate.job.uid)
                self._admission.refuse(candidate.refusal.reason)
            if candidate.refusal.effect is Effect.RESERVES:
                self._reservations.add(
                    candidate.job,
                    candidate.demands,
                    verdict.reserved,
                    free=verdict.free,
                    awaits_own_pods=candidate.awaits_own_pods,
                )

    def carry_over(self, job: Job, reason: Reason | None) -> None:
        """Let a job wait that this cycle does not evaluate, with the reservation and the ``reason``
        of the last cycle."""
        self._reservations.carry_over(job, reason)
        self._mappings.keep(job.uid)

    def settle(self) -> None:
        """Take over all that was carried over, before a job behind it is evaluated."""
        self._reservations.settle()

    def _start(self, start: Candidate) -> None:
        assert start.admit is not None
        self.starts += 1
        self._admission.spend(placement_effort(start, self._mappings))
        self._admission.take(start.admit)
        sender = sending_job(start.job, start.admit.nodes)
        if sender is not None:
            self._traffic.add(sender)
        for demand, nodes in zip(start.demands, start.nodes, strict=True):
            self._capacity.take(nodes, demand.signature.request)
        self._free_nodes.forget()
