"""Mappings of ranks, which one cycle requests and a later one uses.

A mapping takes up to a second, and can fail. So no plan waits for one: a gang whose ranks are to be
mapped keeps its nodes reserved, the plan has its request, and the outcome is part of a later state.
After ``WAIT_S`` the gang starts in the network's order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from railwright_scheduler.mapping.gang_mapping import MappingRequest, MappingResult, map_ranks
from railwright_scheduler.model.snapshot import Job, Node, Role

WAIT_S = 2.0
"""The longest that a gang with nodes waits for the mapping of its ranks."""

MIGRATION = "/migration"
"""Follows the UID of a job in the key of what a migration of it requests."""

GangNodes = tuple[tuple[str, ...], ...]
"""The names of the nodes of each role."""


class Unmapped(StrEnum):
    """Why a gang gets its nodes in the network's order."""

    OVER_BUDGET = "WorkBudgetExceeded"
    LATE = "MappingLate"
    FAILED = "MappingFailed"


Outcome = MappingResult | Unmapped


@dataclass(frozen=True, slots=True)
class RequestedMapping:
    """A request, and what it is for: the ``roles`` of the job, and the nodes of each choice, which
    are of use as long as all ``nodes`` are in the same domains. ``age_s`` counts since the job
    first had a request; the ``outcome`` is None as long as there is none."""

    request: MappingRequest
    roles: tuple[Role, ...]
    gangs: tuple[GangNodes, ...]
    nodes: Mapping[str, tuple[object, ...]]
    age_s: float = 0.0
    outcome: Outcome | None = None

    def is_of(self, job: Job) -> bool:
        """Whether the job has the same roles."""
        return len(self.roles) == len(job.roles) and all(map(_is_same, self.roles, job.roles))

    def stand(self, nodes: Mapping[str, Node]) -> bool:
        """Whether its nodes, found by name, are where they were."""
        return all(name in nodes and place(nodes[name]) == was for name, was in self.nodes.items())


class Mappings:
    """The mappings that one decision has: those ``requested`` in earlier cycles, or with None all,
    computed at once."""

    def __init__(self, requested: Mapping[str, RequestedMapping] | None = None) -> None:
        self._before = requested
        self.requested: dict[str, RequestedMapping] = {}

    def of(self, job_uid: str) -> RequestedMapping | None:
        """What the job requested in an earlier cycle."""
        return None if self._before is None else self._before.get(job_uid)

    def outcome(self, job_uid: str, request: MappingRequest) -> Outcome | None:
        """What became of the job's request; None if it is still to be waited for."""
        if self._before is None:
            return map_ranks(request) or Unmapped.OVER_BUDGET
        before = self._before.get(job_uid)
        if before is None:
            return None
        if before.request is request and before.outcome is not None:
            return before.outcome
        return Unmapped.LATE if before.age_s >= WAIT_S else None

    def is_due(self, job_uid: str) -> bool:
        """Whether the job need not wait for its request any longer."""
        before = self.of(job_uid)
        return before is not None and (before.outcome is not None or before.age_s >= WAIT_S)

    def keep(self, job_uid: str) -> None:
        """Keep the request of a job that this cycle does not evaluate, or that waits for others."""
        before = self.of(job_uid)
        if before is not None:
            self.requested[job_uid] = before

    def of_migration(self, job_uid: str) -> Mappings:
        """Those of the decision by which a running job would migrate, which is never too late."""
        if self._before is None:
            return Mappings()
        before = self.of(job_uid + MIGRATION)
        return Mappings({} if before is None else {job_uid: replace(before, age_s=0.0)})

    def add_migration(self, job_uid: str, inner: Mappings) -> bool:
        """Add what that decision requested; return whether it did."""
        for request in inner.requested.values():
            self.requested[job_uid + MIGRATION] = request
        return bool(inner.requested)


def place(node: Node) -> tuple[object, ...]:
    """Where a node is in the network, by which topology constraints hold or do not."""
    return node.domains, node.rails


def _is_same(role: Role, other: Role) -> bool:
    """Whether two roles request the same of the same nodes, and train the same."""
    return (
        role.replicas == other.replicas
        and role.per_pod == other.per_pod
        and role.constraints == other.constraints
        and role.shares_topology == other.shares_topology
        and role.ranks_per_pod == other.ranks_per_pod
        and (role.workload and role.workload.key) == (other.workload and other.workload.key)
    )
