"""The rate limit of each pod, over all of its connections: a token bucket, stored as one time.

A message costs ``MESSAGE_S`` and the time of its bytes. A pod whose debt exceeds ``BURST_S`` waits;
the connections of other pods do not.

A launcher stays below the limit. A heartbeat every 2 s, the shortest interval, costs 0.1 s of these
2 s, a start barrier at two requests a second 0.35 s of a second, and a retried commit 0.6 s of a
second. The largest burst is the end of a node of 64 ranks: 64 heartbeats and 64 parts of a profile,
16 KiB each, cost 40 s.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

MESSAGE_S = 0.1
BYTE_S = 1 / (64 * 1024)
"""Ten messages a second, or 64 KiB: a pod costs the process a thousandth of its time or two."""

BURST_S = 60.0
WAIT_S_MAX = 10.0
"""The largest debt beyond the burst. Eight connections that each wait this long send less than one
message a second."""


class RateLimit:
    """The debt of each pod. ``clock`` is monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._paid_s: OrderedDict[str, float] = OrderedDict()
        """When the debt of each pod ends."""

    def __repr__(self) -> str:
        return f"<RateLimit pods={len(self._paid_s)}>"

    def reserve(self, pod_uid: str, size: int) -> float:
        """Charge a message of this size; return the seconds until the pod may send it."""
        now_s = self._clock()
        owed_s = max(self._paid_s.pop(pod_uid, now_s) - now_s, 0.0)
        cost_s = MESSAGE_S + size * BYTE_S
        self._paid_s[pod_uid] = now_s + min(owed_s + cost_s, BURST_S + WAIT_S_MAX)
        return max(owed_s - BURST_S, 0.0)

    def forget_paid(self) -> None:
        """Forget pods without debt, the least recent one first."""
        now_s = self._clock()
        while self._paid_s:
            pod_uid = next(iter(self._paid_s))
            if self._paid_s[pod_uid] > now_s:
                return
            del self._paid_s[pod_uid]
