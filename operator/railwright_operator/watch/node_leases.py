"""Check whether the kubelet of a suspected node still renews its Lease.

A launcher that falls silent may be cut off from the operator alone; the node's own witness is its
kubelet, which renews a Lease in kube-node-lease four times in the Lease's duration. Watching all
Leases would be 500 events a second on 5,000 nodes, so only suspects are asked: a Lease that the API
server shows unchanged for longer than a renewal interval is stale. Only its change is looked at,
never its time, so no two clocks are compared.

An API server that does not answer proves nothing about a kubelet, which cannot renew then either.
So only a row of answers without a gap is evidence, and the first answer after one begins a new row.
Nor does one that answers reads and takes no writes, or that no kubelet reaches: some nodes that are
not suspected are asked about too, and a Lease is stale only if another one was renewed meanwhile.

After an outage a living kubelet takes up to 17 s to come back. A launcher that spoke before comes
back sooner, and is evidence of its own; of one that never spoke there is the Lease alone, which is
stale only ``SETTLE_S`` after the outage, or after a new leader began.

Silent launchers are asked about in every round. Of launchers not heard of yet there may be
thousands, whose images are being pulled: so many at a time are asked about, each in every round
until its kubelet is seen to renew or to have stopped, and then it is the next one's turn.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any

from railwright_operator.kube import errors, paths
from railwright_operator.kube.client import Api
from railwright_operator.kube.errors import RequestFailed
from railwright_scheduler.attempt.breaker import SETTLE_S

logger = logging.getLogger(__name__)

ASK_INTERVAL_S = 2.0
ASKED_AT_ONCE_MAX = 64
UNREPORTED_PER_ROUND_MAX = 64
"""32 small reads a second at most."""

CONTROLS_MIN = 16
CONTROLS_MAX = 256
"""So many nodes that are not suspected are asked about beside the suspects, as many as those are
silent; of 16 kubelets one renews every 0.6 s."""

GAP_S_MAX = 3 * ASK_INTERVAL_S
"""Between two answers of a row, and from the last one to whoever relies on it."""

LEASE_DURATION_S_DEFAULT = 40
RENEWALS_PER_LEASE = 4
SLACK_S = 3.0
"""Renewals are jittered by 4 % and may wait for a busy API server."""

Ask = Callable[[str], Awaitable[dict[str, Any] | None]]
"""Reads a node's Lease; None when there is none. Raises RequestFailed when nobody answers."""


@dataclass(frozen=True, slots=True)
class _Sighting:
    """A row of answers that all showed the same renewal."""

    renewed: str
    since_s: float
    asked_s: float
    limit_s: float

    @property
    def stale(self) -> bool:
        """Whether a renewal is missing."""
        return self.asked_s - self.since_s > self.limit_s


class NodeLeaseChecker:
    """The suspected nodes' Leases, as last asked."""

    def __init__(self, ask: Ask, *, clock: Callable[[], float], wake: Callable[[], None]) -> None:
        self._ask = ask
        self._clock = clock
        self._wake = wake
        self._silent: frozenset[str] = frozenset()
        self._unreported: frozenset[str] = frozenset()
        self._controls: frozenset[str] = frozenset()
        self._sightings: dict[str, _Sighting] = {}
        self._passed_s: dict[str, float] = {}
        self._alive_until_s: dict[str, float] = {}
        self._renewal_s = -math.inf
        self._away_s = math.inf

    def __repr__(self) -> str:
        suspected = len(self._silent | self._unreported)
        return f"<NodeLeaseChecker suspects={suspected} sightings={len(self._sightings)}>"

    def set_nodes(
        self, silent: Collection[str], unreported: Collection[str], others: Collection[str]
    ) -> None:
        """From now on ask about these nodes, and forget the others.

        ``silent`` host a launcher that spoke before, ``unheard`` one that never did. Some of the
        ``others`` are asked about for comparison, as long as there is a suspect.
        """
        self._silent = frozenset(silent)
        self._unreported = frozenset(unreported) - self._silent
        suspected = self._silent | self._unreported
        self._controls = self._chosen(frozenset(others) - suspected) if suspected else frozenset()
        for name in self._sightings.keys() - suspected - self._controls:
            del self._sightings[name]
        for name in self._passed_s.keys() - self._unreported:
            del self._passed_s[name]
        now_s = self._clock()
        self._alive_until_s = {n: at_s for n, at_s in self._alive_until_s.items() if at_s >= now_s}

    def stale(self, node: str) -> bool:
        """Whether its kubelet was seen to miss a renewal, by an answer that is still fresh."""
        seen, now_s = self._sightings.get(node), self._clock()
        return (
            seen is not None
            and seen.stale
            and now_s - seen.asked_s <= GAP_S_MAX
            and self._renewal_s >= seen.since_s + SLACK_S
            and (node not in self._unreported or now_s - self._away_s > SETTLE_S)
        )

    def renews(self, node: str) -> bool:
        """Whether its kubelet was seen to renew, and has missed no renewal since."""
        return self._alive_until_s.get(node, -math.inf) >= self._clock()

    def renewing(self) -> frozenset[str]:
        """The nodes whose kubelet renews."""
        return frozenset(filter(self.renews, self._alive_until_s))

    def stale_among(self, nodes: Sequence[str]) -> bool:
        """Whether any of these is; hardly any node is ever asked about."""
        return not self._sightings.keys().isdisjoint(nodes) and any(map(self.stale, nodes))

    async def run(self) -> None:
        """Ask about the suspects until cancelled."""
        gate = asyncio.Semaphore(ASKED_AT_ONCE_MAX)
        # It may have been away until this leader began.
        self._away_s = min(self._away_s, self._clock())
        while True:
            answers = await asyncio.gather(*(self._check(node, gate) for node in self._due()))
            if answers and not any(answers):
                self._away_s = self._clock()
            await asyncio.sleep(ASK_INTERVAL_S)

    def _due(self) -> list[str]:
        """All the silent ones; of the unheard first those under way, then who waited longest."""

        def least_recent(name: str) -> tuple[bool, float, str]:
            return name not in self._sightings, self._passed_s.get(name, -math.inf), name

        unreported = sorted(self._unreported, key=least_recent)
        return sorted(self._silent | self._controls) + unreported[:UNREPORTED_PER_ROUND_MAX]

    def _chosen(self, others: frozenset[str]) -> frozenset[str]:
        """Those asked about before, as their rows have begun; then from all over the cluster."""
        count = min(max(CONTROLS_MIN, len(self._silent)), CONTROLS_MAX)
        kept = sorted(self._controls & others)[:count]
        missing = count - len(kept)
        if not missing:
            return frozenset(kept)
        rest = sorted(others.difference(kept))
        return frozenset((*kept, *rest[:: max(1, len(rest) // missing)][:missing]))

    async def _check(self, node: str, gate: asyncio.Semaphore) -> bool:
        """Ask about one node. Whether there was an answer."""
        async with gate:
            asked_s = self._clock()
            was_stale = self.stale(node)
            try:
                lease = await self._ask(node)
            except RequestFailed as error:
                logger.warning("node lease read failed", extra={"node": node, "error": str(error)})
                self._pass_on(node)
                answered = False
            else:
                self._record_answer(node, lease, asked_s=asked_s)
                answered = True
        if self.stale(node) != was_stale:
            self._wake()
        return answered

    def _record_answer(self, node: str, lease: dict[str, Any] | None, *, asked_s: float) -> None:
        if not any(node in asked for asked in (self._silent, self._unreported, self._controls)):
            return
        before, answered_s = self._sightings.get(node), self._clock()
        after = _sighted(before, lease, asked_s=asked_s, answered_s=answered_s)
        renews = before is not None and before.renewed != after.renewed
        if renews and after.renewed:
            self._renewal_s = answered_s
            self._alive_until_s[node] = answered_s + after.limit_s
        if renews and node in self._unreported:
            self._pass_on(node)
        else:
            self._sightings[node] = after

    def _pass_on(self, node: str) -> None:
        """Nothing is held against this node; others that were not heard of go before it."""
        self._sightings.pop(node, None)
        if node in self._unreported:
            self._passed_s[node] = self._clock()


def _sighted(
    before: _Sighting | None, lease: dict[str, Any] | None, *, asked_s: float, answered_s: float
) -> _Sighting:
    """The sighting after one more answer, dated so that a slow answer never looks like silence."""
    spec = (lease or {}).get("spec", {})
    renewed = str(spec.get("renewTime", ""))
    duration_s = int(spec.get("leaseDurationSeconds") or LEASE_DURATION_S_DEFAULT)
    same = before is not None and before.renewed == renewed
    if before is not None and same and answered_s - before.asked_s <= GAP_S_MAX:
        return replace(before, asked_s=asked_s)
    limit_s = duration_s / RENEWALS_PER_LEASE + SLACK_S
    return _Sighting(renewed, since_s=answered_s, asked_s=asked_s, limit_s=limit_s)


def lease_of(api: Api) -> Callable[[str], Coroutine[Any, Any, dict[str, Any] | None]]:
    """Reads of the Lease of one node's kubelet; None where there is none."""

    async def ask(node: str) -> dict[str, Any] | None:
        try:
            lease: dict[str, Any] = await api.get(paths.kubelet_lease(node), deadline_s=3.0)
        except errors.NotFoundError:
            return None
        return lease

    return ask
