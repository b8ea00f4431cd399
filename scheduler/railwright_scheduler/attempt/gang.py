"""Bind a whole gang or none of it: ``step(entry, seen) -> Step``, and nothing in between.

    COMMITTING --all bound, and recorded on the job--------------------------> out of the ledger
    COMMITTING --suspended, deleted, refused, a node gone, a pod lost, late--> ABORTING
    ABORTING   --recorded on the job, and the ledger is short of room--------> without its texts
    ABORTING   --no live pod left, and recorded on the job-------------------> out of the ledger

A step either changes the entry or returns actions, never both: the caller writes changed entries to
the ledger first, steps again, and acts only under what is written. Every action may be repeated:
a leader that crashed between any two writes is followed by one that sees the same entry and the
same pods, and goes on. All pods are created before the first is bound, so that a quota or a policy
that refuses one of them refuses the gang before anything runs.

A rank that ends before the last one is bound does not stop the commit: if it counted as a deleted
pod, a job whose ranks crash at once would spend no budget and restart forever. The gang is bound,
and the crash is assessed as any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from railwright_scheduler.attempt import causes
from railwright_scheduler.attempt.causes import Cause, CauseCode
from railwright_scheduler.attempt.ledger import Entry, EntryState
from railwright_scheduler.model import text
from railwright_scheduler.model.snapshot import Amounts

COMMIT_DEADLINE_S = 60.0

EXCESS_LENGTH_MAX = 512
"""Characters for the excess requests of a pod; a webhook may add any number of resources."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of the attempt in the API, with its actual requests, which a webhook may have raised.

    ``node`` is empty while it is not bound.
    """

    name: str
    uid: str
    node_rank: int
    node: str
    terminal: bool
    deleting: bool
    amounts: Amounts


@dataclass(frozen=True, slots=True)
class ObservedGang:
    """The observed state of one attempt.

    ``hindrance`` is the last failure during the commit, for the message of a time-out. ``stop`` is
    why the job cancels it (suspended, deleted); ``refusal`` is the API server's message for a
    create or bind that it will never accept; ``invalid_nodes`` are the nodes that can no longer
    take their rank, each with the reason; ``broken_topology`` is how its nodes span more domains
    than planned, or break a constraint; ``stalled_s`` counts since the last progress of its commit
    (``reached``), or since it last waited for others; the recorded attempts are those in the job's
    status (a deleted job needs no record). ``crowded``: the ledger is nearly full. ``started``: its
    launchers passed the barrier, and take no new pod among them. ``now_s`` is the wall clock.
    """

    pods: tuple[Pod, ...]
    placed: bool
    stop: Cause | None
    refusal: str | None
    invalid_nodes: Mapping[str, str]
    broken_topology: str
    stalled_s: float
    recorded_attempt: int
    recorded_end: int
    hindrance: str = ""
    crowded: bool = False
    started: bool = False
    now_s: int = 0


@dataclass(frozen=True, slots=True)
class WritePlacement:
    """Write the Placement, before the first pod."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Make the pod of one node rank, not bound yet."""

    entry: Entry
    node_rank: int


@dataclass(frozen=True, slots=True)
class BindPod:
    """Bind this very pod, by its UID, to its rank's node."""

    entry: Entry
    pod: Pod


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete the pod with this UID, with its own grace period."""

    entry: Entry
    pod: Pod


Action = WritePlacement | CreatePod | BindPod | DeletePod


@dataclass(frozen=True, slots=True)
class Step:
    """The entry to write (None: it leaves the ledger), or what to do under the one written."""

    entry: Entry | None
    actions: tuple[Action, ...] = ()


def reached(pods: Iterable[Pod]) -> int:
    """How far a commit has come: pods made and pods bound."""
    return sum(2 if pod.node else 1 for pod in pods)


def step(entry: Entry, seen: ObservedGang) -> Step:
    """One step of one attempt, from what is written and what is seen."""
    if entry.state is EntryState.ABORTING:
        return _abort(entry, seen)
    cause = _why_abort(entry, seen)
    if cause is not None:
        return Step(entry.aborted(replace(cause, time_s=seen.now_s)))
    return _commit(entry, seen)


def _commit(entry: Entry, seen: ObservedGang) -> Step:
    by_rank = {pod.node_rank: pod for pod in seen.pods}
    if len(by_rank) == len(entry.nodes) and all(pod.node for pod in seen.pods):
        settled = seen.recorded_attempt >= entry.attempt
        return Step(None if settled else entry)
    if not seen.placed:
        return Step(entry, (WritePlacement(entry),))
    if missing := _missing(entry, seen.pods):
        return Step(entry, tuple(CreatePod(entry, rank) for rank in missing))
    unbound = (by_rank[rank] for rank in sorted(by_rank) if not by_rank[rank].node)
    return Step(entry, tuple(BindPod(entry, pod) for pod in unbound))


def _abort(entry: Entry, seen: ObservedGang) -> Step:
    live = [pod for pod in seen.pods if not pod.terminal]
    recorded = seen.recorded_end >= entry.attempt
    if recorded and not live:
        return Step(None)
    if recorded and seen.crowded and entry.brief != entry:
        return Step(entry.brief)
    return Step(entry, tuple(DeletePod(entry, pod) for pod in live if not pod.deleting))


def _why_abort(entry: Entry, seen: ObservedGang) -> Cause | None:
    """The cause that ends the commit; None while it can go on."""
    if seen.stop is not None:
        return seen.stop
    if seen.started and (gone := _missing(entry, seen.pods)):
        return causes.pod_deleted(gone[0], entry.nodes[gone[0]])
    bound = {pod.node_rank for pod in seen.pods if pod.node}
    refusal = seen.refusal or _misplaced_pod(entry, seen.pods)
    if not refusal and len(bound) < len(entry.nodes):
        refusal = _unbindable(entry, seen, bound)
    if refusal:
        return Cause(CauseCode.COMMIT_REFUSED, refusal)
    return _timed_out(entry, seen, bound) if len(bound) < len(entry.nodes) else None


def _missing(entry: Entry, pods: Sequence[Pod]) -> list[int]:
    """The node ranks without a pod."""
    there = {pod.node_rank for pod in pods}
    return [rank for rank in range(len(entry.nodes)) if rank not in there]


def _unbindable(entry: Entry, seen: ObservedGang, bound: Set[int]) -> str:
    """Why the rest of the gang cannot be bound; empty if it can."""
    amounts = entry.amounts
    unfit = (_unfit_pod(pod, amounts[pod.node_rank]) for pod in seen.pods)
    return (
        next(filter(None, unfit), "") or _invalid_node(entry, seen, bound) or seen.broken_topology
    )


def _timed_out(entry: Entry, seen: ObservedGang, bound: Set[int]) -> Cause | None:
    # A gang without a started request, behind thousands of pods, is not late.
    begun = bool(seen.pods or seen.hindrance)
    if begun and seen.stalled_s > COMMIT_DEADLINE_S:
        return Cause(
            CauseCode.COMMIT_TIMED_OUT,
            f"{len(bound)} of {len(entry.nodes)} pods were bound, and for "
            f"{COMMIT_DEADLINE_S:.0f} s none was made or bound"
            + (f"; last trouble: {seen.hindrance}" if seen.hindrance else ""),
        )
    return None


def _misplaced_pod(entry: Entry, pods: Sequence[Pod]) -> str:
    for pod in pods:
        planned = entry.nodes[pod.node_rank]
        if pod.node and pod.node != planned:
            return f"pod {pod.name} is on {pod.node}, planned was {planned}"
    return ""


def _unfit_pod(pod: Pod, planned: Amounts) -> str:
    if pod.deleting or (pod.terminal and not pod.node):
        return f"pod {pod.name} went before its gang was bound"
    # A LimitRange or a webhook may make it larger than the capacity that was found for it.
    more = _excess(pod.amounts, planned)
    return f"pod {pod.name} requests more than the job does: {more}" if more else ""


def _invalid_node(entry: Entry, seen: ObservedGang, bound: Set[int]) -> str:
    for rank, node in enumerate(entry.nodes):
        if rank not in bound and node in seen.invalid_nodes:
            why = f"{seen.invalid_nodes[node]}, and node rank {rank} was not bound to it yet"
            return f"node {node} {why}"
    return ""


def _excess(requests: Amounts, planned: Amounts) -> str:
    more = [
        (name, *text.compared(name, amount, planned.get(name, 0)))
        for name, amount in sorted(requests.items())
        if amount > planned.get(name, 0)
    ]
    return "; ".join(f"{name}: {its}, planned {of_job}" for name, its, of_job in more)[
        :EXCESS_LENGTH_MAX
    ]
