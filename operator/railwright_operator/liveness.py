"""Liveness of the ranks of a running attempt: one row for each rank, assessed by the scheduler.

A rank has three sources: the heartbeats of its launcher; its pod, whose status the kubelet writes;
and its node, with lease and readiness. Nothing in a heartbeat or a pod can make this raise.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, fields

from railwright import protocol
from railwright_api import quantities
from railwright_kube.core_v1 import Waiting
from railwright_operator.heartbeats.interval import INTERVAL_S_MAX, late_beat_s
from railwright_operator.heartbeats.views import LauncherView, SessionView
from railwright_operator.watch.ages import Ages
from railwright_operator.watch.jobs import CachedJob
from railwright_operator.watch.node_leases import NodeLeaseChecker
from railwright_operator.watch.records import PodRecord
from railwright_operator.watch.start_events import StartEvents, StartReport
from railwright_scheduler.attempt.assessment import NODE_MISSING_S
from railwright_scheduler.attempt.hang import Watch
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.starting import IMAGE_REASONS, PULL_DEADLINE_S
from railwright_scheduler.model.evidence import (
    NO_REPORT,
    SILENT_S,
    UNREADY_S,
    Activity,
    Crash,
    ObservedImages,
    ObservedRank,
    ObservedStack,
    ObservedSteps,
    PodState,
)
from railwright_scheduler.model.rank_layout import RankLayout, RoleRanks
from railwright_watch.nodes import NodeRecord

OOM_KILLED, START_ERROR = "OOMKilled", "StartError"
INVALID_NAME = "InvalidImageName"
BACK_OFF = "ImagePullBackOff"
NOT_FOUND = re.compile(r"code = NotFound|: not found\b|manifest unknown|repository does not exist")
"""Messages of containerd, CRI-O and Docker for an image that the registry does not have; the last
is Docker Hub's. The messages for an unreachable registry do not match."""
ERROR = re.compile(r"ErrImagePull|code = |[Ee]rror")
"""In newer kubelets the pause repeats the last error."""

POD_STATES = {state.value: state for state in PodState}
STEP_FIELDS = tuple(each.name for each in fields(protocol.Steps) if each.name != "phase")
ACTIVITIES = {phase: Activity(phase.value) for phase in protocol.Phase}

REASON_LENGTH_MAX = 64
WAITING_LENGTH_MAX = 512
"""Characters of a kubelet's message that are published: a condition holds 1,024 in all."""


@dataclass(frozen=True, slots=True)
class _Made:
    """Ranks without values that age, and the objects that they were built from."""

    sources: tuple[object, ...]
    ranks: tuple[ObservedRank, ...]

    def is_of(self, sources: tuple[object, ...]) -> bool:
        return len(sources) == len(self.sources) and all(map(operator.is_, sources, self.sources))


@dataclass(eq=False, repr=False)
class Liveness:
    """Builds the rows of ranks. Ages of heartbeats are on ``reception_clock``, which stops while
    the operator cannot receive them.

    While gangs start, every change of a pod causes a cycle, in which most gangs are unchanged. So
    rows are cached while no source of theirs changes and none of their values ages.
    """

    lease_checker: NodeLeaseChecker
    _: KW_ONLY
    start_events: StartEvents
    ages: Ages
    reception_ages: Ages
    reception_clock: Callable[[], float]

    def __post_init__(self) -> None:
        self._unfound: set[tuple[str, str]] = set()
        self._held: dict[str, _Made] = {}
        self._present: dict[tuple[str, int], frozenset[str]] = {}

    def ranks(
        self,
        cached: CachedJob,
        *,
        pods: tuple[PodRecord, ...],
        view: SessionView | None,
        nodes: Mapping[str, NodeRecord],
    ) -> tuple[ObservedRank, ...]:
        """The ranks of the live attempt. If a rank has several pods, the last one counts."""
        names = cached.record.nodes
        reports = (self.start_events.of(pod.uid) for pod in pods)
        sources = (cached, pods, view, *reports, *map(nodes.get, names))
        held = self._held.get(cached.uid)
        if held and held.is_of(sources) and not self.lease_checker.stale_among(names):
            return held.ranks
        launchers = view.ranks if view is not None else ()
        by_rank = {pod.node_rank: pod for pod in pods}
        gone = self._gone(cached, nodes)
        layout = cached.layout_of(cached.record)
        ranks = tuple(
            self._rank(
                cached,
                rank,
                layout,
                pod=by_rank.get(rank),
                launcher=launchers[rank] if rank < len(launchers) else None,
                node=nodes.get(name),
                gone=name in gone and self._is_gone(cached, name),
            )
            for rank, name in enumerate(names)
        )
        if gone or any(map(_ages, ranks)) or _any_unready(names, nodes):
            self._held.pop(cached.uid, None)
        else:
            self._held[cached.uid] = _Made(sources, ranks)
        return ranks

    def watch(self, cached: CachedJob, view: SessionView | None) -> Watch:
        """The inputs of hang detection beside the reports of launchers."""
        timeout_s = cached.job.spec.progress_timeout_seconds
        if view is None:
            return Watch(timeout_s)
        now_s = self.reception_clock()
        requested_s = None if view.stacks_since_s is None else now_s - view.stacks_since_s
        return Watch(timeout_s, training_s=now_s - view.training_since_s, requested_s=requested_s)

    def forget_all_but(self, job_uids: Collection[str]) -> None:
        """Drop what is kept of other jobs."""
        self._held = {uid: made for uid, made in self._held.items() if uid in job_uids}
        self._unfound = {key for key in self._unfound if key[0] in job_uids}
        self._present = {key: its for key, its in self._present.items() if key[0] in job_uids}

    def _gone(self, cached: CachedJob, nodes: Mapping[str, NodeRecord]) -> frozenset[str]:
        """The attempt's nodes that were seen and are there no more. A node that was never seen may
        be one that a lagging watch has yet to show."""
        key = cached.uid, cached.record.attempt
        present = frozenset(name for name in cached.record.nodes if name in nodes)
        before = self._present.get(key, frozenset())
        if not present <= before:
            self._present[key] = before | present
        return before - present

    def _is_gone(self, cached: CachedJob, node: str) -> bool:
        """Whether the node is deleted. A node that registers again is missing for a moment, or as
        long as the watch lags, while its kubelet renews."""
        missing_s = self.ages.of("missing", cached.uid, cached.record.attempt, node)
        return missing_s > NODE_MISSING_S and not self.lease_checker.renews(node)

    def _rank(
        self,
        cached: CachedJob,
        node_rank: int,
        layout: RankLayout,
        *,
        pod: PodRecord | None,
        launcher: LauncherView | None,
        node: NodeRecord | None,
        gone: bool,
    ) -> ObservedRank:
        name = cached.record.nodes[node_rank]
        role = layout.of(node_rank)
        done = _ended_well(pod, launcher, role.ranks_per_pod)
        report = None if pod is None else self.start_events.of(pod.uid)
        return ObservedRank(
            node_rank=node_rank,
            node=name,
            pod=_pod_state(pod),
            deleting=pod is not None and pod.deleting,
            done=done,
            crash=None
            if done
            else self._crash(cached, role, node_rank, pod=pod, launcher=launcher),
            silent_s=self._silent_s(cached, launcher),
            unreported=_is_unreported(launcher),
            silence_limit_s=silence_limit_s(launcher),
            lease_stale=self.lease_checker.stale(name),
            node_gone=gone,
            unready_s=self._unready_s(node, launcher),
            out_of_service=node is not None and node.out_of_service,
            waiting=_waiting(pod, report),
            evicted=_evicted(pod),
            steps=None if launcher is None else steps_seen(launcher),
            trains=layout.trains(node_rank),
            role=role.role if len(layout.roles) > 1 else "",
            images=NO_REPORT if pod is None else self._images(pod, cached.uid, report),
        )

    def _images(self, pod: PodRecord, job_uid: str, report: StartReport | None) -> ObservedImages:
        key = job_uid, pod.uid
        if _is_not_found(pod.waiting, before=key in self._unfound):
            self._unfound.add(key)
            return ObservedImages(missing_s=self.ages.of("image missing", pod.uid))
        self._unfound.discard(key)
        if report is None:
            return NO_REPORT
        if report.image and pod.waiting is None:
            over_s = self.reception_clock() - report.began_s - PULL_DEADLINE_S
            return ObservedImages(report.image, report.since, pulled_s=max(0.0, over_s))
        return ObservedImages(
            pulled_s=None if report.ended_s is None else self.reception_clock() - report.ended_s
        )

    def _unready_s(self, node: NodeRecord | None, launcher: LauncherView | None) -> float | None:
        """Since the node was seen not Ready. A kubelet that reports so itself lives: it counts only
        after ``UNREADY_S``. That a kubelet stopped is old news of a watch that lags, if it was seen
        to renew in the last seconds. Without a message of the launcher neither is evidence while
        kubelets come back after an outage."""
        if node is None or node.ready:
            return None
        if _is_unreported(launcher) and not self.lease_checker.has_settled:
            return None
        unready_s = self.ages.of("unready", node.uid)
        if node.unreachable:
            return None if self.lease_checker.renews(node.name) else unready_s
        return unready_s if unready_s > UNREADY_S else None

    def _silent_s(self, cached: CachedJob, launcher: LauncherView | None) -> float | None:
        """Seconds since the last message of the launcher. For one that registered with an earlier
        leader they count from the start of this leader."""
        if launcher is not None and launcher.received_at_s is not None:
            return self.reception_clock() - launcher.received_at_s
        if cached.record.phase is Phase.RUNNING:
            return self.reception_ages.of("listening", cached.uid, cached.record.attempt)
        return None

    def _crash(
        self,
        cached: CachedJob,
        role: RoleRanks,
        node_rank: int,
        *,
        pod: PodRecord | None,
        launcher: LauncherView | None,
    ) -> Crash | None:
        """What the launcher reported; or its termination message; or the bare exit code. When the
        kernel kills a whole container, its launcher reports nothing: the reason comes from the
        kubelet, and the limit from the job."""
        failure = _failure(launcher)
        if failure is not None and launcher is not None and launcher.failed_at_s is not None:
            age_s = self.reception_clock() - launcher.failed_at_s
        else:
            failure = _left(pod, role.ranks_of(node_rank).start)
            if pod is None or failure is None:
                return None
            age_s = self.ages.of("crashed", pod.uid)
        killed = pod is not None and pod.exit is not None and pod.exit.reason == OOM_KILLED
        return Crash(
            rank=failure.rank,
            exit_code=failure.exit_code,
            age_s=age_s,
            signal=failure.signal,
            message=failure.message or "",
            last_lines=failure.last_lines,
            out_of_memory=failure.out_of_memory or killed,
            memory_limit=_memory_limit(cached, role.role) if killed else failure.memory_limit,
        )


def silence_limit_s(launcher: LauncherView | None) -> float:
    """The silence after which a launcher is suspected: its heartbeat is late by two of the shortest
    intervals. A launcher without a message to this leader may use the longest interval."""
    interval_s = INTERVAL_S_MAX if launcher is None else launcher.beat_interval_s
    return SILENT_S + late_beat_s(interval_s)


def _is_unreported(launcher: LauncherView | None) -> bool:
    return launcher is None or launcher.received_at_s is None


def _any_unready(names: Iterable[str], nodes: Mapping[str, NodeRecord]) -> bool:
    """What is known of the leases changes while no source of such a node's row does."""
    return any(not nodes[name].ready for name in names if name in nodes)


def _ages(rank: ObservedRank) -> bool:
    timed = rank.silent_s is not None or rank.unready_s is not None or rank.images != NO_REPORT
    return timed or rank.lease_stale or rank.crash is not None


def steps_seen(launcher: LauncherView) -> ObservedSteps | None:
    """The steps of a launcher's ranks, as last reported."""
    steps = launcher.steps
    if steps is None:
        return None
    stacks = launcher.stacks
    return ObservedSteps(
        **{name: getattr(steps, name) for name in STEP_FIELDS},
        activity=ACTIVITIES[steps.phase],
        stacks=None
        if stacks is None
        else tuple(ObservedStack(s.ranks, s.count, s.answered, s.text) for s in stacks),
    )


def _is_not_found(waiting: Waiting | None, *, before: bool) -> bool:
    """Whether the registry has no such image, or the name is invalid. During back-off a kubelet may
    report only the back-off; then the result of the last try (``before``) holds."""
    if waiting is None:
        return False
    if waiting.reason == INVALID_NAME:
        return True
    if waiting.reason not in IMAGE_REASONS:
        return False
    if NOT_FOUND.search(waiting.message):
        return True
    return before and waiting.reason == BACK_OFF and not ERROR.search(waiting.message)


def _ended_well(pod: PodRecord | None, launcher: LauncherView | None, processes: int) -> bool:
    """Whether all ranks ended with 0, by the main container's exit code or the last heartbeat."""
    if pod is not None and pod.exit is not None and pod.exit.code == 0:
        return True
    ended = launcher is not None and (launcher.running, launcher.exited) == (0, processes)
    return ended and _failure(launcher) is None


def _failure(launcher: LauncherView | None) -> protocol.Failure | None:
    failure = launcher.failure if launcher is not None else None
    return failure if failure is not None and failure.exit_code != 0 else None


def _left(pod: PodRecord | None, first_rank: int) -> protocol.Failure | None:
    """The failure that an ended pod shows; None if no rank caused its end."""
    if pod is None:
        return None
    if pod.exit is None:
        # A container before the main one failed. A pod that its kubelet ended has a reason.
        failed = pod.phase == PodState.FAILED and not pod.reason
        why = "its pod failed before its main container ran"
        return protocol.Failure(first_rank, 1, message=why) if failed else None
    failure = pod.exit.failure
    if failure is None:
        why = pod.exit.message if pod.exit.reason == START_ERROR else pod.reason
        return protocol.Failure(first_rank, pod.exit.code, message=why or None)
    return failure if failure.exit_code != 0 else protocol.Failure(failure.rank, pod.exit.code)


def _memory_limit(cached: CachedJob, role: str) -> int | None:
    """The memory limit of the container of the role's ranks, in bytes."""
    (found,) = (each for each in cached.job.spec.roles if each.name == role)
    resources = found.template.spec.containers[0].resources
    limit = ((resources and resources.limits) or {}).get("memory")
    return None if limit is None else quantities.bytes_of(str(limit))


def _pod_state(pod: PodRecord | None) -> PodState:
    """The state of a pod. An unbound pod of a bound gang was created late and does not count."""
    if pod is None or not pod.node:
        return PodState.MISSING
    return POD_STATES.get(pod.phase, PodState.PENDING)


def _waiting(pod: PodRecord | None, report: StartReport | None) -> str:
    """Why a container waits, or why the pod has none yet: volumes belong to the whole pod."""
    if pod is None:
        return ""
    if pod.waiting is not None:
        reason, message = pod.waiting.reason, pod.waiting.message
        return f"{reason[:REASON_LENGTH_MAX]}: {message[:WAITING_LENGTH_MAX]}"
    if report is None or report.blocked is None:
        return ""
    return f"{report.blocked.reason}: pod {pod.name}: {report.blocked.message}"


def _evicted(pod: PodRecord | None) -> str:
    """Why the cluster ended the pod or is about to end it; empty if it does not."""
    if pod is None:
        return ""
    failed = pod.phase == PodState.FAILED and pod.exit is None
    return pod.disruption or (pod.reason if failed else "")
