"""What must hold of a cluster whatever happens to it, by number, as functions over what is stored.

The simulator asks after every write. Nothing here knows how a write came about: an invariant reads
one revision of the stored objects, or the one write between two. Numbers are those of the design.

    I1   no node holds more than it has, counting what committing gangs are still owed
    I2   a gang is bound whole, or it is in the ledger
    I3   live pods of two attempts of one job: the older attempt is aborting, its pods are going
    I4   the live pods of an attempt have distinct ranks
    I6   a job that ended stays as it ended
    I7   an attempt is counted once, and only for causes that count
    I12  no pod outlives its job, or its attempt
    I14  epochs rise; a pod is bound only while its attempt is in the ledger
    I15  the abort of an attempt is written before the first delete of its pods

I5, that everything comes to rest once faults stop, is a matter of time: the simulator's last phase.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from railwright_scheduler.attempt.assessment import PodState
from railwright_scheduler.attempt.causes import Cause
from railwright_scheduler.attempt.ledger import EntryState, Ledger
from railwright_scheduler.attempt.phases import FINAL
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.snapshot import Amounts

AttemptKey = tuple[str, int]


class ViolationError(Exception):
    """An invariant does not hold; the message begins with its number."""


@dataclass(frozen=True, slots=True)
class PodFact:
    """A pod as it is stored. ``node`` is empty while it is not bound."""

    name: str
    uid: str
    job_uid: str
    attempt: int
    node_rank: int
    amounts: Amounts
    node: str = ""
    phase: PodState = PodState.PENDING
    exit_code: int | None = None
    deleting: bool = False

    @property
    def key(self) -> AttemptKey:
        """The attempt it belongs to."""
        return self.job_uid, self.attempt

    @property
    def terminal(self) -> bool:
        """Whether it has ended for good."""
        return self.phase in (PodState.SUCCEEDED, PodState.FAILED)

    @property
    def live(self) -> bool:
        """Whether it takes its amounts from a node; one that is being deleted still does."""
        return self.node != "" and not self.terminal


@dataclass(frozen=True, slots=True)
class Facts:
    """One revision. ``limits`` are the jobs' budgets.

    Of the history: ``whole`` are the attempts that were wholly bound at one time, ``revoked`` those
    that were ever aborted.
    """

    allocatable: Mapping[str, Amounts]
    pods: Collection[PodFact]
    ledger: Ledger
    records: Mapping[str, JobRecord]
    limits: Mapping[str, int]
    whole: Collection[AttemptKey]
    revoked: Mapping[AttemptKey, Cause]


def check(facts: Facts) -> None:
    """Raise ViolationError if this revision breaks an invariant that each revision must keep."""
    for invariant in (_no_double_booking, _whole_gangs, _one_attempt, _distinct_ranks, _budgets):
        for finding in invariant(facts):
            raise ViolationError(finding)


def check_rest(facts: Facts) -> None:
    """I12, once everything came to rest."""
    for pod in facts.pods:
        record = facts.records.get(pod.job_uid)
        if record is None and not pod.deleting:
            raise ViolationError(f"I12: pod {pod.name} outlives its job {pod.job_uid}")
        over = record is not None and pod.attempt <= record.ended
        if over and not pod.terminal and not pod.deleting:
            raise ViolationError(f"I12: pod {pod.name} outlives its attempt")


def check_ledger(old: Ledger, new: Ledger) -> None:
    """I14, of one write of the ledger."""
    same_leader = new.epoch == old.epoch and new.holder == old.holder
    if not same_leader and new.epoch <= old.epoch:
        raise ViolationError(
            f"I14: the ledger went from epoch {old.epoch} of {old.holder} "
            f"to epoch {new.epoch} of {new.holder}"
        )


def check_bind(ledger: Ledger, pod: PodFact, *, node: str) -> None:
    """I14, of one binding that lands."""
    entry = next((entry for entry in ledger.entries if entry.key == pod.key), None)
    if entry is None:
        raise ViolationError(f"I14: {pod.name} is bound, but its attempt is not in the ledger")
    if entry.nodes[pod.node_rank] != node:
        planned = entry.nodes[pod.node_rank]
        raise ViolationError(f"I14: {pod.name} is bound to {node}, the ledger says {planned}")


def check_delete(facts: Facts, pod: PodFact) -> None:
    """I15, of one delete of ours that lands."""
    record = facts.records.get(pod.job_uid)
    over = record is not None and pod.attempt <= record.ended
    if pod.key not in facts.revoked and not over:
        raise ViolationError(f"I15: {pod.name} is deleted, and no abort of {pod.key} is written")


def check_record(old: JobRecord, new: JobRecord) -> None:
    """I6 and I7, of one write of a job's record."""
    if old.phase in FINAL and new.phase is not old.phase:
        raise ViolationError(f"I6: a job went from {old.phase} to {new.phase}")
    if new.attempt < old.attempt or new.ended < old.ended or new.failures < old.failures:
        raise ViolationError(f"I7: a record went back, from {old} to {new}")


def _no_double_booking(facts: Facts) -> Iterator[str]:
    used: dict[str, dict[str, int]] = {}
    for pod in facts.pods:
        if pod.live:
            _add(used.setdefault(pod.node, {}), pod.amounts)
    running = {(pod.key, pod.node_rank) for pod in facts.pods if pod.live}
    for entry in facts.ledger.entries:
        if entry.state is EntryState.COMMITTING:
            for rank, node in enumerate(entry.nodes):
                if (entry.key, rank) not in running:
                    _add(used.setdefault(node, {}), entry.per_node)
    for node in sorted(used):
        has = facts.allocatable.get(node)
        for resource, amount in used[node].items():
            if has is not None and amount > has.get(resource, 0):
                yield f"I1: {node} has {has.get(resource, 0)} {resource}, given away are {amount}"


def _add(total: dict[str, int], amounts: Amounts) -> None:
    for resource, amount in amounts.items():
        total[resource] = total.get(resource, 0) + amount


def _whole_gangs(facts: Facts) -> Iterator[str]:
    in_flight = {entry.key for entry in facts.ledger.entries}
    for pod in facts.pods:
        if pod.live and pod.key not in in_flight and pod.key not in facts.whole:
            yield f"I2: {pod.name} runs, its gang was never whole and is not in the ledger"


def _one_attempt(facts: Facts) -> Iterator[str]:
    newest: dict[str, int] = {}
    for pod in facts.pods:
        if pod.live:
            newest[pod.job_uid] = max(newest.get(pod.job_uid, 0), pod.attempt)
    aborting = {e.key for e in facts.ledger.entries if e.state is EntryState.ABORTING}
    for pod in facts.pods:
        if pod.live and pod.attempt < newest[pod.job_uid]:
            if pod.key not in aborting:
                yield f"I3: {pod.name} lives beside a newer attempt and is not being aborted"
            elif not pod.deleting:
                yield f"I3: {pod.name} lives beside a newer attempt and was not told to go"


def _distinct_ranks(facts: Facts) -> Iterator[str]:
    seen: dict[tuple[AttemptKey, int], str] = {}
    for pod in facts.pods:
        if pod.live:
            twin = seen.setdefault((pod.key, pod.node_rank), pod.name)
            if twin != pod.name:
                yield f"I4: {pod.name} and {twin} are both rank {pod.node_rank} of {pod.key}"


def _budgets(facts: Facts) -> Iterator[str]:
    for uid, record in facts.records.items():
        causes = [cause for key, cause in facts.revoked.items() if key[0] == uid]
        counted = sum(cause.counted for cause in causes)
        if record.failures > min(counted, facts.limits[uid] + 1):
            yield f"I7: {uid} has {record.failures} failures, {counted} of its attempts counted"
        if record.restarts > len(causes):
            yield f"I7: {uid} has {record.restarts} restarts, {len(causes)} attempts were revoked"
