"""Which jobs need an attempt now, and with which number and previous nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from railwright_scheduler.attempt.causes import AWAITS_PODS
from railwright_scheduler.attempt.ledger import AttemptKey, Entry
from railwright_scheduler.attempt.phases import FINAL
from railwright_scheduler.cluster_state import ClusterState, ObservedAttempt, ObservedJob
from railwright_scheduler.model.reasons import Reason
from railwright_scheduler.model.snapshot import Job, Node, Unavailable

DRAINED_S = 120.0
"""How long a job waits for its own pods to end, if the next attempt is to have their nodes
(``AWAITS_PODS``). A pod that does not end must not keep the job from running: then it starts
wherever it fits."""

ENDING_S = 10.0
"""Likewise after any other end. Killed ranks are gone within a second or two; without the wait the
job would take whatever else is free, however slow and far apart. A back-off that is no longer keeps
its nodes too; a job that fails again and again gives them up."""

_DEAD = (Unavailable.UNREADY, Unavailable.LOST)


def live_nodes(nodes: Iterable[Node]) -> frozenset[str]:
    """The names of the nodes on which pods can still end."""
    return frozenset(node.name for node in nodes if node.unavailable not in _DEAD)


@dataclass(frozen=True, slots=True)
class PendingAttempt:
    """An attempt that a job needs. It ``awaits_own_pods`` while it only waits for these to end, or
    for a short back-off, and does not join the queue while it is ``held``."""

    job: Job
    awaits_own_pods: bool
    held: Reason | None


def pending_attempt(
    seen: ObservedJob,
    before: Sequence[Entry],
    entries: Sequence[Entry],
    state: ClusterState,
    alive: frozenset[str],
) -> PendingAttempt | None:
    """The attempt that the job needs in this cycle, if any. ``before`` are its ledger entries as
    the cycle began, ``entries`` those that are left."""
    if needs_attempt(seen, entries, state.attempts):
        waits = seen.held is None and _waits_for_ending(seen, entries, state.attempts, alive)
        return PendingAttempt(next_attempt(seen, before), awaits_own_pods=waits, held=seen.held)
    if awaits_own_pods(seen, entries) or _returns_soon(seen, entries):
        return PendingAttempt(next_attempt(seen, before), awaits_own_pods=True, held=None)
    return None


def is_idle(seen: ObservedJob) -> bool:
    """Whether the job has no live attempt and is to have one."""
    return not (seen.suspend or seen.record.live or seen.record.phase in FINAL)


def needs_attempt(
    seen: ObservedJob, entries: Iterable[Entry], attempts: Mapping[AttemptKey, ObservedAttempt]
) -> bool:
    """Whether the job needs a new attempt: the last one is over, and each of its pods is gone or
    being deleted.

    If an attempt is over on the record and still committing in this ledger, another leader ended
    it: the next write of the ledger finds that out.
    """
    if not is_idle(seen) or seen.ended_age_s < seen.record.backoff_s:
        return False
    for entry in entries:
        pods = attempts.get(entry.key, ObservedAttempt()).pods
        staying = any(not pod.terminal and not pod.deleting for pod in pods)
        if entry.attempt > seen.record.ended or entry.cause is None or staying:
            return False
    return True


def _waits_for_ending(
    seen: ObservedJob,
    entries: Iterable[Entry],
    attempts: Mapping[AttemptKey, ObservedAttempt],
    alive: frozenset[str],
) -> bool:
    """Whether the new attempt still waits for the pods of the last one to end."""
    return any(
        seen.ended_age_s < (DRAINED_S if entry.cause.code in AWAITS_PODS else ENDING_S)
        and is_draining([entry], attempts, alive)
        for entry in entries
        if entry.cause is not None and entry.attempt == seen.record.ended
    )


def _returns_soon(seen: ObservedJob, entries: Sequence[Entry]) -> bool:
    """Whether the job, which needs no attempt yet, starts again after a short back-off, or once the
    deletion of its pods has begun."""
    return (
        is_idle(seen)
        and seen.held is None
        and seen.ended_age_s < ENDING_S
        and seen.record.backoff_s <= ENDING_S
        and all(entry.cause is not None for entry in entries)
    )


def awaits_own_pods(seen: ObservedJob, entries: Sequence[Entry]) -> bool:
    """Whether the job, which needs no attempt yet, starts again once its own pods have ended."""
    causes = [entry.cause for entry in entries if entry.cause is not None]
    if seen.suspend or not entries or len(causes) < len(entries):
        return False
    # If it runs again, or did, the pods that are left are on a dead node.
    return causes[-1].code in AWAITS_PODS and entries[-1].attempt >= seen.record.attempt


def next_attempt(seen: ObservedJob, entries: Sequence[Entry]) -> Job:
    """The job with the number of its next attempt, and the nodes of the last of ``entries``. All
    attempts before it are over, so the record counts those in the ledger too."""
    last = max(entries, key=lambda entry: entry.attempt, default=None)
    before = () if last is None else last.nodes
    if last is not None and last.cause is not None:
        blamed = {*last.cause.nodes, last.cause.node}
        before = tuple("" if name in blamed else name for name in before)
    return with_previous_nodes(replace(seen.job, attempt=seen.record.attempt + 1), before)


def with_previous_nodes(job: Job, nodes: tuple[str, ...]) -> Job:
    """The job, each role with the ``nodes`` of its pods in the last attempt. If a job of several
    roles had another number of pods then, their roles are unknown: it gets none."""
    if len(job.roles) > 1 and len(nodes) != job.num_pods:
        return job
    pod_ranges = job.pod_ranges if len(job.roles) > 1 else (slice(None),)
    its = zip(job.roles, pod_ranges, strict=True)
    return replace(job, roles=tuple(replace(role, before=_once(nodes[pods])) for role, pods in its))


def previous_nodes(job: Job) -> tuple[str, ...]:
    """The nodes of the job's pods in its last attempt, as reservations have them; "" for those that
    it is not to have again."""
    return tuple(name for role in job.roles for name in role.before)


def _once(nodes: tuple[str, ...]) -> tuple[str, ...]:
    """These nodes, each once: if the roles changed since, two pods of one may have shared a node
    when they were of several."""
    first: dict[str, int] = {}
    return tuple(name if first.setdefault(name, at) == at else "" for at, name in enumerate(nodes))


def is_draining(
    entries: Iterable[Entry],
    attempts: Mapping[AttemptKey, ObservedAttempt],
    alive: frozenset[str],
) -> bool:
    """Whether an old attempt still has live pods on nodes where they can end."""
    return any(
        not pod.terminal and (not pod.node or (pod.node in alive and pod.node not in lost))
        for entry in entries
        if entry.cause is not None
        for lost in [frozenset(entry.cause.nodes)]
        for pod in attempts.get(entry.key, ObservedAttempt()).pods
    )
