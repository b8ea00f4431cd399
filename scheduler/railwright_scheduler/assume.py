"""Assume capacity for gangs in flight: what their pods will take on nodes where none is bound yet.

kube-scheduler assumes pods in the same sense. For a committing attempt capacity is assumed for each
rank that does not run on its node: a pod that ended there may be deleted, and is then created
again. For an aborting one it is assumed for each unbound pod, as an earlier leader may still be
binding it. For an attempt that runs it is assumed for each pod that failed: the attempt is about to
end, and its job to start again there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from railwright_scheduler.attempt.gang import Pod
from railwright_scheduler.attempt.ledger import Entry, EntryState
from railwright_scheduler.cluster import NODE_AMOUNT_MAX
from railwright_scheduler.cluster_state import ClusterState, ObservedAttempt, ObservedJob
from railwright_scheduler.model.evidence import PodState
from railwright_scheduler.model.snapshot import LOST_GRACE_S, Amounts, Node, Unavailable
from railwright_scheduler.usage import add_amounts


def unbound_pods(entry: Entry, pods: Sequence[Pod]) -> list[int]:
    """The numbers of the pods that the entry may still bind."""
    if entry.state is EntryState.ABORTING:
        valid = [pod for pod in pods if pod.node_rank < len(entry.nodes)]
        return [pod.node_rank for pod in valid if not pod.node and not pod.terminal]
    running = {pod.node_rank for pod in pods if pod.node and not pod.terminal}
    return [number for number in range(len(entry.nodes)) if number not in running]


def add_assumed(assumed: dict[str, dict[str, int]], entry: Entry, pods: Iterable[int]) -> None:
    """Add what these pods of the entry request to the amounts assumed on each node."""
    amounts = entry.amounts
    for number in pods:
        add_amounts(assumed.setdefault(entry.nodes[number], {}), [amounts[number]])


def subtract_assumed(
    state: ClusterState, entries: Sequence[Entry], double_booked: Collection[str] = ()
) -> tuple[Node, ...]:
    """The nodes with the capacity assumed for in-flight attempts taken. Nodes found lost, or
    ``double_booked``, are unavailable.

    A node is lost while a pod of the attempt that lost it is left there: a node that is back has
    removed its pods, although others that died with it have not.
    """
    assumed: dict[str, dict[str, int]] = {}
    lost: dict[str, bool] = {}
    starting = {entry.job_uid for entry in entries if entry.state is EntryState.COMMITTING}
    for job in state.jobs:
        if job.record.live and job.job.uid not in starting:
            for name, amounts in _failed(job):
                add_amounts(assumed.setdefault(name, {}), [amounts])
    for entry in entries:
        seen = state.attempts.get(entry.key, ObservedAttempt())
        lost |= _lost(entry, seen)
        add_assumed(assumed, entry, unbound_pods(entry, seen.pods))
    return tuple(
        without_double_booked(
            _with_assumed(node, assumed.get(node.name, {}), lost.get(node.name)), double_booked
        )
        for node in state.nodes
    )


def _failed(seen: ObservedJob) -> Iterator[tuple[str, Amounts]]:
    """The node and the request of each pod of the live attempt that failed."""
    failed = {rank.node_rank for rank in seen.ranks if rank.pod is PodState.FAILED}
    nodes = seen.record.nodes
    if failed and len(nodes) == seen.job.num_pods:
        for node_rank, amounts in enumerate(seen.job.amounts):
            if node_rank in failed:
                yield nodes[node_rank], amounts


def _lost(entry: Entry, seen: ObservedAttempt) -> dict[str, bool]:
    """The nodes that the entry lost, each with whether that was a short time ago."""
    if entry.cause is None:
        return {}
    left = {pod.node for pod in seen.pods if not pod.terminal}
    recently = seen.age_s < LOST_GRACE_S
    return dict.fromkeys((node for node in entry.cause.nodes if node in left), recently)


def without_double_booked(node: Node, double_booked: Collection[str]) -> Node:
    """The node, unavailable if it is one of these."""
    if node.name not in double_booked or node.unavailable is not None:
        return node
    return replace(node, unavailable=Unavailable.DOUBLE_BOOKED)


def _with_assumed(node: Node, assumed: Amounts, lost: bool | None) -> Node:
    """The node with this capacity taken. ``lost`` is None if it is not, else whether recently."""
    if not assumed and lost is None:
        return node
    used = dict(node.used)
    for name, amount in assumed.items():
        used[name] = min(used.get(name, 0) + amount, NODE_AMOUNT_MAX)
    return replace(
        node,
        used=used,
        unavailable=node.unavailable or (None if lost is None else Unavailable.LOST),
        recently_lost=node.recently_lost or (lost is True and node.unavailable is None),
    )
