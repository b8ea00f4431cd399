"""Suspected nodes: select the node leases to read, and update the breaker.

The state builder calls this once a cycle, with the ranks of all running attempts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from railwright import protocol
from railwright_api import names
from railwright_operator.watch.node_leases import NodeLeaseChecker
from railwright_scheduler.attempt import breaker
from railwright_scheduler.attempt.breaker import CLOSED, Breaker
from railwright_scheduler.cluster_state import ObservedJob
from railwright_scheduler.model.evidence import SILENT_S, ObservedRank
from railwright_watch.nodes import NodeRecord

logger = logging.getLogger(__name__)

SUSPECT_S = protocol.HEARTBEAT_INTERVAL_S
"""How long before the silence limit of a launcher its node lease is read: a node is lost only if
both are late."""

UNREPORTED_S = SILENT_S + 4.0
"""How long after the bind a launcher without a message makes its node suspected. Its image may be
being pulled, or its node may be dead."""

_Ranks = Iterable[tuple[ObservedJob, ObservedRank]]


class SuspectedNodes:
    """The suspected nodes of a cycle, and the breaker."""

    def __init__(self, lease_checker: NodeLeaseChecker, *, clock: Callable[[], float]) -> None:
        self._lease_checker = lease_checker
        self._clock = clock
        self._breaker = CLOSED
        self._updated_s = clock()

    def update(self, jobs: Sequence[ObservedJob], nodes: Mapping[str, NodeRecord]) -> Breaker:
        """Update the breaker for this cycle, and select the nodes whose leases are read."""
        now_s, before = self._clock(), self._breaker
        self._breaker = breaker.assess(
            before,
            (rank for seen in jobs for rank in seen.ranks),
            renewing=self._lease_checker.renewing(),
            none_renews=self._lease_checker.none_renews,
            passed_s=now_s - self._updated_s,
        )
        self._updated_s = now_s
        if self._breaker.is_open != before.is_open:
            counts = {
                "silent": self._breaker.silent,
                "alive": self._breaker.alive,
                "none_renews": self._lease_checker.none_renews,
            }
            state = "opened" if self._breaker.is_open else "closed"
            logger.warning("breaker changed", extra={"state": state, **counts})
        ranks = [(seen, rank) for seen in jobs for rank in seen.ranks if not rank.done]
        silent, unreported = _silent(ranks), _unreported(ranks, nodes)
        self._lease_checker.set_nodes(
            silent,
            unreported,
            _comparable(nodes) if silent or unreported else (),
            alone=breaker.is_silence_common(
                (rank for _, rank in ranks), renewing=self._lease_checker.renewing()
            ),
        )
        return self._breaker


def _silent(ranks: _Ranks) -> set[str]:
    return {
        rank.node
        for _, rank in ranks
        if rank.silent_s is not None and rank.silent_s > rank.silence_limit_s - SUSPECT_S
    }


def _unreported(ranks: _Ranks, nodes: Mapping[str, NodeRecord]) -> set[str]:
    """Nodes of launchers without a message whose gang was bound some time ago, or which are not
    Ready or missing."""
    return {
        rank.node
        for seen, rank in ranks
        if (seen.bound_age_s > UNREPORTED_S or rank.node not in nodes or not nodes[rank.node].ready)
        and rank.silent_s is None
        and rank.crash is None
    }


def _comparable(nodes: Mapping[str, NodeRecord]) -> set[str]:
    """The nodes whose renewals can be compared. One of the control plane reaches the API server on
    another path than the others, unless all nodes are of it."""
    workers = {name for name, node in nodes.items() if names.CONTROL_PLANE not in node.labels}
    return {name for name in workers or nodes if nodes[name].ready}
