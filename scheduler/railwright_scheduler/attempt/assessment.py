"""Assess an attempt from its ranks: it goes on, it succeeded, or it ended with a cause.

Problem: when a node dies, the crashes of its peers ("connection reset") are often observed before
its silence. Blaming them spends the user's failure budget and hides the node. Silence alone is no
proof either: an operator that is cut off from its launchers receives nothing from healthy ones.

Idea: two independent sources of liveness for a node, its launcher (heartbeats to the operator) and
its kubelet (the node's Lease and Ready condition). A node is lost when both are silent. A recent
heartbeat overrides the node's state in the API. Only changes count: a node that was not Ready
before its launcher fell silent ran well without being Ready. A crash is assessed only when every
other launcher has sent a heartbeat since, or the silent ones have been assessed. Kubernetes ends
pods with SIGTERM, or the image's STOPSIGNAL, so a rank that such a signal ended is blamed only if
its pod turns out not to be deleted.

Both sources use one network. While that looks cut (``breaker``), silence ends no attempt. Other
causes still count: an exit, a deleted pod (as Kubernetes deletes those of a deleted node), a node
that is declared out of service, a silence of more than ``HOLD_S``, or a crash that a launcher of
the same gang reports.

Texts of ranks and kubelets can have any content, and a cause goes into the ledger that all jobs
share: every text is cut here, where causes are made.

All ages are in seconds of one monotonic clock.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from railwright_scheduler.attempt import causes, hang, starting
from railwright_scheduler.attempt.causes import Cause, CauseCode
from railwright_scheduler.attempt.hang import UNWATCHED, Watch
from railwright_scheduler.model.evidence import (
    SILENT_S,
    UNREADY_S,
    Crash,
    ObservedRank,
    PodState,
)

VERDICT_S = 25.0
"""The longest that a crash waits for the verdict on launchers that fell silent with it."""

NODE_MISSING_S = 10.0
"""How long a node must be missing from the API until it counts as deleted: one that is registered
anew is missing for as long as the watch lags."""

HOLD_S = 600.0
"""The longest that an attempt with silent nodes is held while the control plane looks cut off. As
long as an API server may be away: Kubernetes evicts pods of unreachable nodes after about 350 s."""

REMOVAL_S = 10.0
"""How long the API may take to show the removal of a pod whose rank a stop signal has ended: a
kubelet reports an eviction only after the containers have stopped."""

REJECTIONS = frozenset(
    {
        "AppArmor",
        "InitContainerRestartPolicyForbidden",
        "PodFeatureUnsupported",
        "PodLevelResourcesNotSupported",
        "PodOSNotSupported",
        "PodOSSelectorNodeLabelDoesNotMatch",
        "SMTAlignmentError",
        "SupplementalGroupsPolicyNotSupported",
        "SysctlForbidden",
        "TopologyAffinityError",
    }
)
"""Why a kubelet (1.36) rejects a pod for what its spec requests. Its other reasons, such as
``OutOfcpu``, ``UnexpectedAdmissionError`` or ``NodeShutdown``, are of the node."""

STOP_SIGNALS = {129: "SIGHUP", 130: "SIGINT", 131: "SIGQUIT", 143: "SIGTERM"}
"""Those by which a launcher ends, by its exit code then."""


@dataclass(frozen=True, slots=True)
class Ongoing:
    """The attempt goes on. ``suspected`` are silent node ranks.

    ``wants_stacks``: its steps stall, and launchers are to send the stacks of their ranks.
    ``held``: the control plane looks cut off, so silence ends nothing.
    """

    suspected: tuple[int, ...] = ()
    wants_stacks: bool = False
    held: bool = False


@dataclass(frozen=True, slots=True)
class Succeeded:
    """Every rank ended with 0."""


@dataclass(frozen=True, slots=True)
class Ended:
    """It cannot go on."""

    cause: Cause


Assessment = Ongoing | Succeeded | Ended


def assess(
    ranks: Sequence[ObservedRank],
    *,
    started: bool,
    age_s: float,
    start_timeout_s: float = starting.START_TIMEOUT_S,
    watch: Watch = UNWATCHED,
    cut: bool = False,
) -> Assessment:
    """Assess one attempt whose gang is bound.

    ``started``: the barrier was passed. ``age_s``: since this leader first observed the gang bound;
    its ranks may be missing at the barrier for ``start_timeout_s``. ``watch``: the operator's own
    inputs of hang detection. ``cut``: the breaker is open.
    """
    if all(map(_is_well, ranks)):
        return Succeeded()
    held = cut and not any(rank.responsive for rank, _ in _crashes(ranks))
    suspected, first = _suspected(ranks), _first_crash(ranks)
    cause = _lost_or_gone(ranks, held=held) or _settled_crash(ranks, first, suspected, held=held)
    if cause is None and not (started or cut):
        cause = starting.assess(ranks, age_s=age_s, timeout_s=start_timeout_s)
    trains = cause is None and started and first is None
    hung = hang.assess(_training(ranks), watch, cut=cut) if trains else None
    if isinstance(ended := cause or hung, Cause):
        return Ended(causes.bounded(ended))
    named = tuple(rank.node_rank for rank in suspected)
    held = held and _is_any_silent(ranks)
    return Ongoing(named, wants_stacks=hung is not None, held=held)


def _lost_or_gone(ranks: Sequence[ObservedRank], *, held: bool) -> Cause | None:
    """The cause if nodes are lost, or else a pod is gone: both explain crashes of other ranks."""
    lost = [rank for rank in ranks if _is_declared_lost(rank) or _is_lost(rank, held=held)]
    if lost:
        return _node_lost(lost)
    gone = next((rank for rank in ranks if _pod_is_gone(rank)), None)
    return None if gone is None else _pod_gone(gone)


def _settled_crash(
    ranks: Sequence[ObservedRank],
    first: tuple[ObservedRank, Crash] | None,
    suspected: Sequence[ObservedRank],
    *,
    held: bool,
) -> Cause | None:
    """The first crash, once no loss of a node or pod can explain it any more."""
    if first is None:
        return None
    settled = not suspected and not _may_be_removed(ranks)
    late = first[1].age_s > (HOLD_S if held else VERDICT_S + _late_s(ranks))
    return _crashed(*first) if settled or late else None


def _late_s(ranks: Sequence[ObservedRank]) -> float:
    """How much longer a verdict may take than with the shortest interval of heartbeats."""
    return max(rank.silence_limit_s for rank in ranks) - SILENT_S


def _training(ranks: Sequence[ObservedRank]) -> list[ObservedRank]:
    """The launchers whose ranks train and still run."""
    return [rank for rank in ranks if rank.trains and not _is_over(rank)]


def _is_well(rank: ObservedRank) -> bool:
    """Ended well. Only the pod's own end proves it of a pod that is being taken away."""
    return rank.pod is PodState.SUCCEEDED or (rank.done and not _is_taken(rank))


def _is_taken(rank: ObservedRank) -> bool:
    return rank.deleting or rank.evicted != ""


def _is_over(rank: ObservedRank) -> bool:
    """Whether the rank has ended, with any result."""
    return rank.done or rank.pod in (PodState.SUCCEEDED, PodState.FAILED) or rank.crash is not None


def is_quiet(rank: ObservedRank, *, for_s: float) -> bool:
    """Whether its launcher has been silent for longer than this, and is not done."""
    return not _is_over(rank) and rank.silent_s is not None and rank.silent_s > for_s


def looks_lost(rank: ObservedRank) -> bool:
    """Whether its launcher is silent, and its kubelet is too or its node is deleted. An unready
    node counts only if it was Ready at the launcher's last message."""
    if _is_over(rank) or rank.responsive:
        return False
    if rank.node_gone or rank.lease_stale or rank.unready_s is None:
        return rank.node_gone or rank.lease_stale
    if rank.silent_s is None:
        return rank.unready_s > UNREADY_S
    return rank.unready_s < rank.silent_s


def _is_lost(rank: ObservedRank, *, held: bool) -> bool:
    if not held:
        return looks_lost(rank)
    silent_s = rank.unready_s if rank.silent_s is None else rank.silent_s
    # A leader that began after its node was lost has seen no change, and never saw it run.
    unseen = rank.unreported and rank.unready_s is not None and not _is_over(rank)
    return (looks_lost(rank) or unseen) and silent_s is not None and silent_s > HOLD_S


def _is_declared_lost(rank: ObservedRank) -> bool:
    """Whether the loss has more evidence than silence."""
    return rank.out_of_service and not _is_over(rank) and not rank.responsive


def _is_any_silent(ranks: Sequence[ObservedRank]) -> bool:
    return bool(_suspected(ranks)) or any(map(looks_lost, ranks))


def _suspected(ranks: Sequence[ObservedRank]) -> list[ObservedRank]:
    """Launchers without a message for too long, or since the first crash."""
    first = _first_crash(ranks)
    crashed_s = math.inf if first is None else first[1].age_s
    return [rank for rank in ranks if is_quiet(rank, for_s=min(rank.silence_limit_s, crashed_s))]


def _pod_is_gone(rank: ObservedRank) -> bool:
    if _is_well(rank):
        return False
    failed_by_node = rank.pod is PodState.FAILED and rank.crash is None
    return rank.pod is PodState.MISSING or _is_taken(rank) or failed_by_node


def _crashes(ranks: Sequence[ObservedRank]) -> list[tuple[ObservedRank, Crash]]:
    """A sidecar that fails after its rank ended well is none of them."""
    return [(rank, rank.crash) for rank in ranks if rank.crash is not None and not _is_well(rank)]


def _first_crash(ranks: Sequence[ObservedRank]) -> tuple[ObservedRank, Crash] | None:
    return max(
        _crashes(ranks),
        # A kubelet reports a kill for memory later than launchers report what follows from it.
        key=lambda pair: (pair[1].out_of_memory, pair[1].age_s, -pair[1].rank),
        default=None,
    )


def _may_be_removed(ranks: Sequence[ObservedRank]) -> bool:
    """Whether the API may still show that a pod was taken away, and the crashes with it."""
    return any(
        crash.age_s <= REMOVAL_S
        and (crash.signal in STOP_SIGNALS.values() or crash.exit_code in STOP_SIGNALS)
        for _, crash in _crashes(ranks)
    )


def _node_lost(lost: Sequence[ObservedRank]) -> Cause:
    nodes, first = tuple(sorted({rank.node for rank in lost})), lost[0]
    if first.node_gone:
        evidence = "the node is gone from the API"
    elif first.out_of_service:
        evidence = "its taint says that it is out of service"
    elif first.silent_s is None:
        unready = f"not Ready for {first.unready_s or 0:.0f} s"
        never = "its launcher sent no message and its kubelet missed its renewal"
        evidence = never if first.lease_stale else unready
    else:
        kubelet = "its kubelet missed its renewal" if first.lease_stale else "it is not Ready"
        evidence = f"its launcher has been silent for {first.silent_s:.0f} s and {kubelet}"
    more = f" (and {len(nodes) - 1} more)" if len(nodes) > 1 else ""
    return Cause(
        CauseCode.NODE_LOST,
        f"node {first.node}{more} with node rank {first.node_rank} is lost: {evidence}",
        nodes=nodes,
        node=first.node,
    )


def _pod_gone(rank: ObservedRank) -> Cause:
    pod = f"the pod of node rank {rank.node_rank}"
    if rank.pod is PodState.FAILED and rank.evicted in REJECTIONS:
        message = f"the kubelet of {rank.node} rejected {pod}: {rank.evicted}"
        return Cause(CauseCode.POD_REJECTED, message, node=rank.node)
    if rank.evicted:
        message = f"{pod} on {rank.node} was evicted: {rank.evicted}"
    elif rank.pod is PodState.FAILED and not rank.deleting:
        detail = f": {rank.waiting}" if rank.waiting else ""
        message = f"{pod} failed on {rank.node} without an exit code{detail}"
    else:
        return causes.pod_deleted(rank.node_rank, rank.node)
    return Cause(CauseCode.POD_EVICTED, message, node=rank.node)


def _crashed(rank: ObservedRank, crash: Crash) -> Cause:
    code = CauseCode.OUT_OF_MEMORY if crash.out_of_memory else CauseCode.RANK_FAILED
    ended = f"was ended by {crash.signal}" if crash.signal else f"exited with {crash.exit_code}"
    why = _out_of_memory(crash) if crash.out_of_memory else ""
    detail = f": {crash.message}" if crash.message else ""
    role = f" of role {rank.role}" if rank.role else ""
    return Cause(
        code,
        f"rank {crash.rank}{role} on {rank.node} {ended}{why}{detail}",
        node=rank.node,
        rank=crash.rank,
        exit_code=crash.exit_code,
        signal=crash.signal,
        last_lines=crash.last_lines,
    )


def _out_of_memory(crash: Crash) -> str:
    if crash.memory_limit is None:
        return "; the kernel killed it for memory, and its container has no limit"
    limit = f"{crash.memory_limit >> 20}Mi"
    return f"; the kernel killed it for memory, and the limit of its container is {limit}"
