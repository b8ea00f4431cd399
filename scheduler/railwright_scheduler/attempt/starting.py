"""Decide whether a bound gang takes too long to start: containers, images, the start barrier.

The time to start counts from the end of the last image pull that a kubelet reported, as a large
image may take longer than everything else; without such reports it counts from the binding. A pull
without a reported end counts as over after `PULL_DEADLINE_S`. An
image that the registry does not have ends the job: every retry would fail. An unreachable registry
ends only the attempt and spends no budget: the next attempt tries again. So does a gang whose
missing launchers all run: they register until a message arrives, so the network lost all of them.

`assessment` calls this. All ages are in seconds of one monotonic clock.
"""

from __future__ import annotations

from collections.abc import Sequence

from railwright_scheduler.attempt.causes import Cause, CauseCode
from railwright_scheduler.model.evidence import ObservedRank, PodState

START_TIMEOUT_S = 600.0
"""The longest from the last binding, or from the last image pull, until all ranks are at the
barrier, unless the job has another ``startTimeoutSeconds``."""

PULL_DEADLINE_S = 3600.0
"""The longest that the pull of one image may keep the time to start from counting: 30 GiB at 70
Mbit/s. The report of its end may be lost, and a registry may hang."""

IMAGE_MISSING_S = 300.0
"""For how long a registry must report that it does not have an image: it may be pushed later than
the job is applied, and a mirror may lag."""

IMAGE_REASONS = ("ErrImagePull", "ImagePullBackOff")
"""Reasons of a container that waits for its image, which the kubelet failed to pull."""

RANKS_NAMED_MAX = 16


def assess(ranks: Sequence[ObservedRank], *, age_s: float, timeout_s: float) -> Cause | None:
    """Why the attempt does not start, if it is to end.

    ``age_s`` counts from its binding, ``timeout_s`` from there or from the last image pull.
    """
    for rank in ranks:
        if (rank.images.missing_s or 0) > IMAGE_MISSING_S:
            return Cause(
                CauseCode.IMAGE_NOT_FOUND,
                f"node rank {rank.node_rank} on {rank.node}: {rank.waiting}",
                node=rank.node,
            )
    pulled = (rank.images.pulled_s for rank in ranks)
    since_s = min([age_s, *(pulled_s for pulled_s in pulled if pulled_s is not None)])
    return _timed_out(ranks, timeout_s) if since_s > timeout_s else None


def _timed_out(ranks: Sequence[ObservedRank], timeout_s: float) -> Cause:
    absent = [rank for rank in ranks if rank.silent_s is None]
    code, waiting = _obstacle(absent)
    named = ", ".join(str(rank.node_rank) for rank in absent[:RANKS_NAMED_MAX])
    cut_off: tuple[str, ...] = ()
    if absent and all(rank.pod is PodState.RUNNING and not rank.waiting for rank in absent):
        code = CauseCode.LAUNCHER_UNHEARD
        waiting = "their launchers run, and the operator received no message from them"
        # If others sent messages, these nodes may be the cause: the next attempt avoids them.
        cut_off = tuple(each.node for each in absent) if len(absent) < len(ranks) else ()
    return Cause(
        code,
        f"{len(absent)} of {len(ranks)} node ranks never reached the barrier in "
        f"{timeout_s:.0f} s: {named}" + (f" ({waiting})" if waiting else ""),
        nodes=cut_off,
    )


def _obstacle(absent: Sequence[ObservedRank]) -> tuple[CauseCode, str]:
    """The cause that the kubelets of absent launchers report, and what their pods wait for."""
    unpulled = next((each for each in absent if _is_unpulled(each)), None)
    if unpulled is not None:
        waiting = unpulled.waiting or f"pulling {unpulled.images.pulling}"
        return CauseCode.IMAGE_PULL_FAILED, waiting
    return CauseCode.START_TIMED_OUT, next((each.waiting for each in absent if each.waiting), "")


def _is_unpulled(rank: ObservedRank) -> bool:
    return rank.waiting.startswith(IMAGE_REASONS) or rank.images.pulling != ""
