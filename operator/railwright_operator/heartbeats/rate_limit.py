"""The rate limit of each pod, over all of its connections: a token bucket, kept as one time.

A message costs its pod ``MESSAGE_S`` and the time of its bytes. A pod that owes more than
``BURST_S`` waits; the connections of other pods do not.

A launcher owes less than it is given back. A heartbeat each 2 s, the
shortest interval, costs 0.1 s of these 2 s, a start
barrier at two requests a second 0.35 s of a second, and a commit that is tried again 0.6 s of a
second. The largest burst is the end of a node of 64 ranks: 64 heartbeats, and 64 parts of a
profile of 16 KiB each, cost 40 s.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

MESSAGE_S = 0.1
BYTE_S = 1 / (64 * 1024)
"""Ten messages a second, or 64 KiB: a pod costs the operator a thousandth of its time or two."""

BURST_S = 60.0
WAIT_S_MAX = 10.0
"""A pod owes no more than this beyond its burst. Its eight connections that wait so long send less
than one message a second."""


class RateLimit:
    """What each pod owes. ``clock`` is monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._paid_s: OrderedDict[str, float] = OrderedDict()
        """When a pod will owe nothing."""

    def __repr__(self) -> str:
        return f"<RateLimit pods={len(self._paid_s)}>"

    def reserve(self, pod_uid: str, size: int) -> float:
        """Seconds until this pod may send a message of so many bytes."""
        now_s = self._clock()
        owed_s = max(self._paid_s.pop(pod_uid, now_s) - now_s, 0.0)
        cost_s = MESSAGE_S + size * BYTE_S
        self._paid_s[pod_uid] = now_s + min(owed_s + cost_s, BURST_S + WAIT_S_MAX)
        return max(owed_s - BURST_S, 0.0)

    def forget_paid(self) -> None:
        """Forget pods that owe nothing, the one that sent least recently first."""
        now_s = self._clock()
        while self._paid_s:
            pod_uid = next(iter(self._paid_s))
            if self._paid_s[pod_uid] > now_s:
                return
            del self._paid_s[pod_uid]
