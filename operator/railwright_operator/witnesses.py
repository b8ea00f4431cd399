"""The ranks of a running attempt, as their witnesses show them.

A rank has three: its launcher, which beats; its pod, of which the kubelet writes; and its node,
with Lease and readiness. What each says is put into one row a rank here, and judged elsewhere.
Nothing that a launcher or a pod says can be wrong enough to raise.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from railwright import wire
from railwright_operator.heartbeats.views import RankView, SessionView
from railwright_operator.watch.ages import Ages
from railwright_operator.watch.jobs import Known
from railwright_operator.watch.kubelets import Kubelets
from railwright_operator.watch.records import NodeRecord, PodRecord
from railwright_scheduler.attempt.assessment import Crash, PodState, RankSeen
from railwright_scheduler.attempt.phases import Phase

OOM_KILLED = "OOMKilled"
POD_STATES = {state.value: state for state in PodState}

REASON_LENGTH_MAX = 64
WAITING_LENGTH_MAX = 512
"""Characters of a kubelet's words that are told: conditions hold 1,024, with others' words."""


@dataclass(frozen=True, slots=True)
class _Made:
    """Ranks of which nothing ages, and the very objects that they were made of."""

    sources: tuple[object, ...]
    ranks: tuple[RankSeen, ...]

    def is_of(self, sources: tuple[object, ...]) -> bool:
        return len(sources) == len(self.sources) and all(map(operator.is_, sources, self.sources))


class Witnesses:
    """What there is to ask about ranks; ages are taken on the clock that the sessions use.

    While gangs start, turns come as fast as their pods change, and most gangs stand still in each.
    So ranks are kept as long as nothing about them changed or ages.
    """

    def __init__(self, kubelets: Kubelets, *, ages: Ages, clock: Callable[[], float]) -> None:
        self._kubelets = kubelets
        self._ages = ages
        self._clock = clock
        self._held: dict[str, _Made] = {}

    def __repr__(self) -> str:
        return f"<Witnesses {self._kubelets!r}>"

    def ranks(
        self,
        known: Known,
        *,
        pods: tuple[PodRecord, ...],
        view: SessionView | None,
        nodes: Mapping[str, NodeRecord],
    ) -> tuple[RankSeen, ...]:
        """The live attempt's ranks; of several pods of one rank the last counts."""
        names = known.record.nodes
        sources = (known, pods, view, *map(nodes.get, names))
        held = self._held.get(known.uid)
        if held and held.is_of(sources) and not self._kubelets.stale_among(names):
            return held.ranks
        heard = view.ranks if view is not None else ()
        by_rank = {pod.node_rank: pod for pod in pods}
        ranks = tuple(
            self._rank(
                known,
                rank,
                pod=by_rank.get(rank),
                heard=heard[rank] if rank < len(heard) else None,
                node=nodes.get(name),
            )
            for rank, name in enumerate(names)
        )
        if any(map(_ages, ranks)):
            self._held.pop(known.uid, None)
        else:
            self._held[known.uid] = _Made(sources, ranks)
        return ranks

    def forget_all_but(self, job_uids: Collection[str]) -> None:
        """Drop what is kept of other jobs."""
        self._held = {uid: made for uid, made in self._held.items() if uid in job_uids}

    def _rank(
        self,
        known: Known,
        node_rank: int,
        *,
        pod: PodRecord | None,
        heard: RankView | None,
        node: NodeRecord | None,
    ) -> RankSeen:
        name = known.record.nodes[node_rank]
        processes = known.job.spec.num_proc_per_node
        done = _ended_well(pod, heard, processes)
        first_rank = node_rank * processes
        return RankSeen(
            node_rank=node_rank,
            node=name,
            pod=_pod_state(pod),
            deleting=pod is not None and pod.deleting,
            done=done,
            crash=None if done else self._crash(pod, heard, first_rank=first_rank),
            silent_s=self._silent_s(known, heard),
            lease_stale=self._kubelets.stale(name),
            node_gone=node is None,
            unready_s=None if node is None or node.ready else self._ages.of("unready", node.uid),
            waiting=_waiting(pod),
            evicted=_evicted(pod),
        )

    def _silent_s(self, known: Known, heard: RankView | None) -> float | None:
        """Since the launcher spoke; one that must have spoken to an earlier leader counts from
        when this one began to listen."""
        if heard is not None and heard.heard_at_s is not None:
            return self._clock() - heard.heard_at_s
        if known.record.phase is Phase.RUNNING:
            return self._ages.of("listening", known.uid, known.record.attempt)
        return None

    def _crash(
        self, pod: PodRecord | None, heard: RankView | None, *, first_rank: int
    ) -> Crash | None:
        """What the launcher said; or its termination message; or the bare exit code."""
        told = _failure(heard)
        if told is not None and heard is not None and heard.failed_at_s is not None:
            return _crash_of(told, pod, age_s=self._clock() - heard.failed_at_s)
        left = _left(pod, first_rank)
        if pod is None or left is None:
            return None
        return _crash_of(left, pod, age_s=self._ages.of("crashed", pod.uid))


def _ages(rank: RankSeen) -> bool:
    timed = rank.silent_s is not None or rank.unready_s is not None
    return timed or rank.lease_stale or rank.crash is not None


def _ended_well(pod: PodRecord | None, heard: RankView | None, processes: int) -> bool:
    """By the main container's exit code, whatever sidecars do; or by its launcher's last beat."""
    if pod is not None and pod.exit is not None and pod.exit.code == 0:
        return True
    ended = heard is not None and (heard.running, heard.exited) == (0, processes)
    return ended and _failure(heard) is None


def _failure(heard: RankView | None) -> wire.Failure | None:
    told = heard.failure if heard is not None else None
    return told if told is not None and told.exit_code != 0 else None


def _left(pod: PodRecord | None, first_rank: int) -> wire.Failure | None:
    """The failure that an ended pod shows; None where its end is no rank's doing."""
    if pod is None:
        return None
    if pod.exit is None:
        # A container before the main one failed; where a kubelet ends a pod, it says the reason.
        failed = pod.phase == PodState.FAILED and not pod.reason
        why = "its pod failed before its main container ran"
        return wire.Failure(first_rank, 1, message=why) if failed else None
    try:
        told = wire.decode(wire.Failure, pod.exit.message.encode("utf-8", "replace"))
    except wire.WireError:
        return wire.Failure(first_rank, pod.exit.code, message=pod.reason or None)
    return told if told.exit_code != 0 else wire.Failure(told.rank, pod.exit.code)


def _crash_of(told: wire.Failure, pod: PodRecord | None, *, age_s: float) -> Crash:
    return Crash(
        rank=told.rank,
        exit_code=told.exit_code,
        age_s=age_s,
        signal=told.signal,
        message=told.message or "",
        last_lines=told.last_lines,
        out_of_memory=pod is not None and pod.exit is not None and pod.exit.reason == OOM_KILLED,
    )


def _pod_state(pod: PodRecord | None) -> PodState:
    """A pod that is not bound is none of a settled attempt's: a create that landed late."""
    if pod is None or not pod.node:
        return PodState.MISSING
    return POD_STATES.get(pod.phase, PodState.PENDING)


def _waiting(pod: PodRecord | None) -> str:
    if pod is None or pod.waiting is None:
        return ""
    reason, message = pod.waiting.reason, pod.waiting.message
    return f"{reason[:REASON_LENGTH_MAX]}: {message[:WAITING_LENGTH_MAX]}"


def _evicted(pod: PodRecord | None) -> str:
    """Why the cluster ended the pod, or is about to."""
    if pod is None:
        return ""
    failed = pod.phase == PodState.FAILED and pod.exit is None
    return pod.disruption or (pod.reason if failed else "")
