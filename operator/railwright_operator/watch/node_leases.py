"""Check whether the kubelet of a suspected node still renews its Lease.

A silent launcher may be cut off from the operator only. The kubelet of its node is independent
evidence: it renews a Lease in kube-node-lease four times within the Lease's duration. A watch of
all Leases would be 500 events a second on 5,000 nodes, so only Leases of suspected nodes are read.
A Lease that is unchanged for longer than a renewal interval is stale. Only changes count, not the
time in the Lease, so no two clocks are compared.

While the API server does not respond, kubelets cannot renew either. So only an unbroken row of
responses is evidence, and the first response after a gap begins a new row. The API server may also
serve reads but no writes, or be unreachable for kubelets. So some Leases of other nodes are read
too, and a Lease is stale only if another one was renewed meanwhile.

All nodes may be cut off at once, and those whose renewals were due first miss them first. Of a
silent launcher only a row counts that began after its last messages: before such a row can be
stale, the launchers of all others are silent too (``breaker``).

Of a launcher without a message the Lease is the only evidence, as it is where launchers are silent
though their nodes live (``breaker``). One request of a kubelet that hangs
delays its renewal to 21 s, an API server that loses power to 31 s. So this Lease is stale only
after its whole duration, and if another one was renewed after its own renewal was due.

After an outage a live kubelet takes up to 17 s to renew again. A launcher that sent messages before
sends them again within ``RECONNECT_S``. The Lease of a launcher without a message is stale only
``SETTLE_S`` after the outage, or after the start of this leader.

An outage may be one between kubelets and the API server alone. Then a Lease is renewed after a time
in which it should have been renewed before, by the clock of its kubelet. As long as it lasts, no
Lease that is read is renewed (``none_renews``). Nor is one if all nodes are dead: what lasts for
longer than ``HOLD_S`` is no outage, or a new leader would hold their attempts for ever.

The Leases of silent launchers are read in every round. Launchers without a message may be
thousands, whose images are being pulled. Of their nodes some are read at a time, each in every
round until its kubelet has renewed or stopped; then the next ones follow.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from railwright_kube import errors, paths
from railwright_kube.client import Api
from railwright_kube.errors import RequestFailed
from railwright_scheduler.attempt.assessment import HOLD_S
from railwright_scheduler.attempt.breaker import SETTLE_S

logger = logging.getLogger(__name__)

ASK_INTERVAL_S = 2.0
READ_DEADLINE_S = 3.0
ASKED_AT_ONCE_MAX = 64
UNREPORTED_PER_ROUND_MAX = 64
"""32 small reads a second at most."""

CONTROLS_MIN = 16
CONTROLS_MAX = 256
"""The number of other nodes whose Leases are read: as many as nodes are silent, within these
bounds. One of 16 kubelets renews every 0.6 s."""

GAP_S_MAX = 3 * ASK_INTERVAL_S
"""The longest gap between two responses of a row, and from the last one to its use."""

RECONNECT_S = 6.0
"""How long a launcher takes that could not connect for a while: it tries again every 5 s."""

LEASE_DURATION_S_DEFAULT = 40
RENEWALS_PER_LEASE = 4
JITTER = 0.04
"""The share by which kubelets lengthen a renewal interval at random."""

SLACK_S = 3.0
"""How long a renewal may wait for a busy API server."""

Ask = Callable[[str], Awaitable[dict[str, Any] | None]]
"""Reads a node's Lease; None when there is none. Raises RequestFailed without a response."""


@dataclass(frozen=True, slots=True)
class _Sighting:
    """A row of responses with the same renewal."""

    renewed: str
    since_s: float
    asked_s: float
    limit_s: float
    duration_s: float

    @property
    def age_s(self) -> float:
        """The length of the row."""
        return self.asked_s - self.since_s

    @property
    def stale(self) -> bool:
        """Whether a renewal is missing."""
        return self.age_s > self.limit_s


class NodeLeaseChecker:
    """The Leases of suspected nodes, as last read."""

    def __init__(self, ask: Ask, *, clock: Callable[[], float], wake: Callable[[], None]) -> None:
        self._ask = ask
        self._clock = clock
        self._wake = wake
        self._silent: frozenset[str] = frozenset()
        self._unreported: frozenset[str] = frozenset()
        self._controls: frozenset[str] = frozenset()
        self._alone = False
        self._sightings: dict[str, _Sighting] = {}
        self._passed_s: dict[str, float] = {}
        self._alive_until_s: dict[str, float] = {}
        self._renewal_s = -math.inf
        self._away_s = math.inf
        self._renewing_s = math.inf

    def __repr__(self) -> str:
        suspected = len(self._silent | self._unreported)
        return f"<NodeLeaseChecker suspected={suspected} sightings={len(self._sightings)}>"

    def set_nodes(
        self,
        silent: Collection[str],
        unreported: Collection[str],
        others: Collection[str],
        *,
        alone: bool,
    ) -> None:
        """Set the nodes whose Leases are read; forget all others.

        ``silent`` nodes host a launcher that sent messages before, ``unreported`` ones a launcher
        that sent none. Some of the ``others`` are read for comparison while a node is suspected.
        ``alone``: no silence is evidence, so that Leases of the silent have to last as long as
        those of the unreported.
        """
        self._alone = alone
        for name in frozenset(silent) - self._silent:
            # It may have been read for comparison until now.
            self._sightings.pop(name, None)
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
        """Whether the kubelet missed a renewal, by a recent response."""
        seen, now_s = self._sightings.get(node), self._clock()
        is_unreported = node in self._unreported
        if seen is None or not (is_unreported or node in self._silent):
            return False
        alone = is_unreported or self._alone
        due_s = seen.since_s + seen.limit_s - SLACK_S
        return (
            seen.age_s > (seen.duration_s if alone else seen.limit_s)
            and now_s - seen.asked_s <= GAP_S_MAX
            and self._renewal_s >= (due_s if alone else seen.since_s + SLACK_S)
            and (self.has_settled if alone else now_s - self._away_s > RECONNECT_S)
        )

    @property
    def none_renews(self) -> bool:
        """Whether Leases are read, and each has missed a renewal, by a recent response, since the
        last renewal that was seen. Nodes without a Lease prove nothing."""
        now_s = self._clock()
        rows = [seen for seen in self._sightings.values() if seen.renewed]
        return bool(rows) and all(
            seen.stale
            and now_s - seen.asked_s <= GAP_S_MAX
            and now_s - self._renewal_s > seen.limit_s
            for seen in rows
        )

    @property
    def has_settled(self) -> bool:
        """Whether kubelets could renew for as long as they take to come back after an outage, or
        none has renewed for as long as an attempt may be held."""
        now_s = self._clock()
        return now_s - self._away_s > SETTLE_S or now_s - self._renewing_s > HOLD_S

    def renews(self, node: str) -> bool:
        """Whether the kubelet renewed and has missed no renewal since."""
        return self._alive_until_s.get(node, -math.inf) >= self._clock()

    def renewing(self) -> frozenset[str]:
        """The nodes whose kubelet renews."""
        return frozenset(filter(self.renews, self._alive_until_s))

    def stale_among(self, nodes: Sequence[str]) -> bool:
        """Whether any of these nodes is stale. Few nodes are ever read."""
        return not self._sightings.keys().isdisjoint(nodes) and any(map(self.stale, nodes))

    async def run(self) -> None:
        """Read the selected Leases until cancelled."""
        gate = asyncio.Semaphore(ASKED_AT_ONCE_MAX)
        # The API server may have been unreachable until this leader started.
        self._away_s = min(self._away_s, self._clock())
        while True:
            answers = await asyncio.gather(*(self._check(node, gate) for node in self._due()))
            if answers and not any(answers):
                self._away_s = self._clock()
                self._sightings.clear()
            if self.none_renews:
                self._away_s = self._clock()
            else:
                self._renewing_s = self._clock()
            await asyncio.sleep(ASK_INTERVAL_S)

    def _due(self) -> list[str]:
        """All silent nodes; of the unreported ones those in progress, then the least recent
        ones."""

        def least_recent(name: str) -> tuple[bool, float, str]:
            return name not in self._sightings, self._passed_s.get(name, -math.inf), name

        unreported = sorted(self._unreported, key=least_recent)
        return sorted(self._silent | self._controls) + unreported[:UNREPORTED_PER_ROUND_MAX]

    def _chosen(self, others: frozenset[str]) -> frozenset[str]:
        """The nodes for comparison: those of the last round first, then a spread over the
        cluster."""
        count = min(max(CONTROLS_MIN, len(self._silent)), CONTROLS_MAX)
        kept = sorted(self._controls & others)[:count]
        missing = count - len(kept)
        if not missing:
            return frozenset(kept)
        rest = sorted(others.difference(kept))
        return frozenset((*kept, *rest[:: max(1, len(rest) // missing)][:missing]))

    async def _check(self, node: str, gate: asyncio.Semaphore) -> bool:
        """Read the Lease of one node; return whether there was a response."""
        async with gate:
            asked_s = self._clock()
            was_stale = self.stale(node)
            try:
                lease = await self._ask(node)
            except RequestFailed as error:
                logger.warning("node lease read failed", extra={"node": node, "error": str(error)})
                if node in self._unreported:
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
        if before is not None and renews and after.renewed:
            # One kubelet may be slow: others renewed meanwhile.
            is_first = answered_s - self._renewal_s > after.limit_s
            if is_first and _passed_s(before.renewed, after.renewed) > after.limit_s:
                self._away_s = answered_s
            self._renewal_s = answered_s
            self._alive_until_s[node] = answered_s + after.limit_s
        if renews and node in self._unreported:
            self._pass_on(node)
        else:
            self._sightings[node] = after

    def _pass_on(self, node: str) -> None:
        """Clear the evidence against this node; other unreported nodes precede it from now on."""
        self._sightings.pop(node, None)
        if node in self._unreported:
            self._passed_s[node] = self._clock()


def _sighted(
    before: _Sighting | None, lease: dict[str, Any] | None, *, asked_s: float, answered_s: float
) -> _Sighting:
    """The sighting after one more response, dated so that a slow response is not silence."""
    spec = (lease or {}).get("spec", {})
    renewed = str(spec.get("renewTime", ""))
    duration_s = int(spec.get("leaseDurationSeconds") or LEASE_DURATION_S_DEFAULT)
    same = before is not None and before.renewed == renewed
    if before is not None and same and answered_s - before.asked_s <= GAP_S_MAX:
        return replace(before, asked_s=asked_s)
    limit_s = duration_s / RENEWALS_PER_LEASE * (1 + JITTER) + SLACK_S
    return _Sighting(renewed, answered_s, asked_s, limit_s, duration_s=duration_s)


def _passed_s(earlier: str, later: str) -> float:
    """The time between two renewals of one kubelet, by its own clock; 0 if these are no times."""
    try:
        return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()
    except (ValueError, TypeError):
        return 0.0


async def read_lease(api: Api, node: str) -> dict[str, Any] | None:
    """Read the Lease of a node; None if there is none. Raises RequestFailed."""
    try:
        lease: dict[str, Any] = await api.get(paths.kubelet_lease(node), deadline_s=READ_DEADLINE_S)
    except errors.NotFoundError:
        return None
    return lease
