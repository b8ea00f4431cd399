"""I25: no job outlives its deadline while one leader leads, and nothing fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from history.invariants import ViolationError
from railwright_conversion import times
from railwright_scheduler.attempt.phases import FINAL, Phase
from simulator.simulated_cluster import SimulatedCluster

SLACK_S = 30.0
"""How much longer a job may be active: for the cycle that finds it, the writes of the ledger and
the status, each of which is tried again after up to 10 s, and the round in which this is checked.
A start that an earlier leader dated later counts as now once a leader has read it."""

WINDOW_S = 86_400
"""The default of ``failurePolicy.windowSeconds``."""


def is_active(status: Mapping[str, Any]) -> bool:
    """Whether the time runs that the deadline of a job bounds: it has started, and is not over."""
    phase = status.get("phase")
    has_started = "startedAt" in status or phase == Phase.RUNNING
    return has_started and phase not in {Phase.SUSPENDED, *FINAL}


def has_expiring_failure(
    spec: Mapping[str, Any], status: Mapping[str, Any], *, now_s: float, within_s: float
) -> bool:
    """Whether a failure leaves the window of ``failurePolicy`` soon, by the leader's clock: the
    status has the number of those in it."""
    window_s = (spec.get("failurePolicy") or {}).get("windowSeconds", WINDOW_S)
    ends = [times.parse(each) + window_s for each in status.get("failureTimes", ())]
    return any(now_s - SLACK_S <= end_s <= now_s + within_s + SLACK_S for end_s in ends)


class Deadlines:
    """For how long jobs have been active under the same leader."""

    def __init__(self) -> None:
        self._leader = ""
        self._since_s: dict[str, float] = {}

    def check(self, cluster: SimulatedCluster, *, now_s: float) -> None:
        """I25, by the true time."""
        leader = "" if cluster.leader is None else cluster.leader.name
        before = self._since_s if leader == self._leader else {}
        self._leader, self._since_s = leader, {}
        for job in cluster.users.jobs:
            metadata, status = job["metadata"], job.get("status") or {}
            if not leader or not is_active(status):
                continue
            uid = metadata["uid"]
            since_s = self._since_s[uid] = before.get(uid, now_s)
            deadline_s = job["spec"].get("activeDeadlineSeconds")
            if deadline_s is not None and now_s - since_s > deadline_s + SLACK_S:
                raise ViolationError(
                    f"I25: {metadata['name']} is active for {now_s - since_s:.0f} s under "
                    f"{leader}, its deadline is {deadline_s} s: {status}"
                )
