"""A circuit breaker on silence: distinguish a cut control plane from dead nodes.

Problem: launchers and kubelets fail together when the network between the control plane and the
nodes fails. All launchers and node leases fall silent at once, and every healthy attempt looks lost
in the same cycle.

Idea: silence is evidence only beside a control group, the nodes that still send messages over the
same network. While more nodes look lost than show signs of life, the operator counts as cut off,
and silence ends no attempt. Kubernetes' node controller also stops evictions when most nodes of a
zone are not ready; it counts conditions that are 40 s old, this breaker counts launchers and leases
of the last seconds. A majority is the largest share that still finds one dead rack of two, or one
dead node of two.

After a cut, launchers and kubelets recover one by one over some seconds. The breaker stays open
until ``SETTLE_S`` have passed without a majority of silent nodes; nodes that are silent then are
dead. A cut may end just before nodes look lost, and must open the breaker too. So two or more
launchers that are silent for ``QUIET_S`` count, unless one of their kubelets renewed meanwhile (a
user can stop launchers, but not kubelets). Where no launcher sent a message yet, none can fall
silent: there a time counts in which no lease was renewed of those that are read.

The operator computes the breaker once a cycle, from all running attempts. It is a value; the one
before it and the time since then are arguments.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from railwright_scheduler.attempt import assessment
from railwright_scheduler.model.evidence import SILENT_S, ObservedRank

SETTLE_S = 30.0
"""How long launchers and kubelets have to come back after a cut. A launcher tries again after at
most 5 s, a kubelet after at most 17 s (a request that hangs for 10 s, then a backoff of 7 s)."""


QUIET_S = SILENT_S
"""Beyond the silence limit of a launcher. With the 5 s that launchers need to reconnect, this is
less than a lease needs to become stale. Of 16 kubelets that are read for comparison, about ten have
renewed by then."""

MANY = 2


@dataclass(frozen=True, slots=True)
class Breaker:
    """``silent`` nodes look lost, ``alive`` ones show signs of life. ``calm_s`` counts since the
    control plane last looked cut off."""

    silent: int = 0
    alive: int = 0
    calm_s: float = SETTLE_S

    @property
    def is_open(self) -> bool:
        """Whether silence proves nothing now."""
        return self.calm_s < SETTLE_S


CLOSED = Breaker()


def assess(
    before: Breaker,
    ranks: Iterable[ObservedRank],
    *,
    renewing: Collection[str],
    none_renews: bool,
    passed_s: float,
) -> Breaker:
    """The breaker of this cycle, from all ranks of running attempts.

    A launcher without a message to this leader is no sign of life.
    ``renewing`` are the nodes whose lease was renewed in the last seconds. ``none_renews``: leases
    are read, and each has missed a renewal.
    ``passed_s`` counts since ``before`` was computed.
    """
    alive, silent, quiet = set(renewing), set(), set()
    for rank in ranks:
        if rank.responsive and not rank.unreported:
            alive.add(rank.node)
        elif assessment.looks_lost(rank):
            silent.add(rank.node)
        if assessment.is_quiet(rank, for_s=rank.silence_limit_s + QUIET_S):
            quiet.add(rank.node)
    if len(quiet) >= MANY and quiet.isdisjoint(renewing):
        silent |= quiet
    silent -= alive
    is_cut = len(silent) > len(alive) or (none_renews and not alive)
    return Breaker(len(silent), len(alive), calm_s=0 if is_cut else before.calm_s + passed_s)


def is_silence_common(ranks: Iterable[ObservedRank], *, renewing: Collection[str]) -> bool:
    """Whether most launchers are silent, also some whose kubelet renews: their silence has another
    cause than dead nodes, such as the network in front of the operator. The Lease of a node is the
    only evidence then, as of a launcher without a message."""
    responsive, silent = set(), set()
    for rank in ranks:
        if rank.responsive and not rank.unreported:
            responsive.add(rank.node)
        elif assessment.is_quiet(rank, for_s=rank.silence_limit_s):
            silent.add(rank.node)
    silent -= responsive
    return len(silent) > len(responsive) and not silent.isdisjoint(renewing)
