"""How much of the queue one scheduling cycle evaluates, and where the next one goes on.

Problem: users decide how many jobs wait, and evaluating one takes up to milliseconds. A cycle that
evaluated all of them would take seconds, and one of more than ten ends the leader.

Idea: a cycle evaluates jobs in queue order up to a bound of counted work. It begins at the front,
with half of the bound, so that priorities hold. The other half goes on where the last cycle
stopped, so that every job is evaluated once in a round of cycles: of n jobs behind the front, of
which half of the bound is enough for m, in n / m cycles, rounded up. Jobs that come behind them
meanwhile are of the next round. Jobs that are not evaluated keep what they have reserved; a gang
that has nodes and its mapping is due, and is evaluated whatever its position.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from railwright_scheduler.budget import CALL, QUEUE_WORK
from railwright_scheduler.cluster import Cluster
from railwright_scheduler.model.snapshot import QueuePosition, QueueRound
from railwright_scheduler.policy.scheduling_queue import Verdict

FRONT = 50
"""Percent of the bound that the front of the queue has."""

DUE = 10
"""Percent of the bound that gangs have beside it which have nodes and their mapping."""

JOB = 20_000
"""For a job of which all is known already."""

MASKS, CHOICE, SPLIT = 20, 4, 12
"""For each node: for the masks of a new kind of job, for choosing among nodes, and for each level
of the tree where a spread or segments limit what its domains may have."""

CALLS, TOLERATION = 5, 1_000
"""Calls for each of these, however few nodes there are; and for each toleration of a new kind, and
each requirement, or value of one, of its node affinity."""


class EvaluationWork(NamedTuple):
    """What it takes to evaluate a job: ``own`` for it alone, and ``shared`` for results that other
    jobs of this cycle can use, by what these depend on."""

    own: int
    shared: tuple[tuple[Hashable, int], ...] = ()


class QueueWindow:
    """Which jobs one cycle evaluates. ``begun`` is the round that goes on; None begins one."""

    def __init__(self, begun: QueueRound | None, limit: int = QUEUE_WORK) -> None:
        self._start = None if begun is None else begun.start
        self._end = None if begun is None else begun.end
        self._limit = limit
        self._shared: set[Hashable] = set()
        self._spent = self._extra = 0
        self._is_begun = self._is_over = self._is_blocked = self._is_extra = False
        self._last: QueuePosition | None = None
        self._stopped: QueuePosition | None = None

    @property
    def following(self) -> QueueRound | None:
        """The position at which the next cycle goes on, after this one visited every job; None if
        all were evaluated."""
        if self._last is None or not (self._stopped or self._is_over):
            return None
        end = self._end if self._stopped and self._end else self._last
        return QueueRound(self._stopped, end, self._is_blocked)

    def admits(self, position: QueuePosition, *, is_due: bool = False) -> bool:
        """Whether the next job of the queue is evaluated. At least one at the front is, and one
        where the last cycle stopped, however large they are. Of the others those that are due."""
        admitted = self._is_next(position)
        self._is_extra = is_due and not admitted and self._extra <= self._limit * DUE // 100
        return admitted or self._is_extra

    def _is_next(self, position: QueuePosition) -> bool:
        self._last = position
        if self._is_front:
            return True
        if self._start is not None and position < self._start:
            return False
        if self._end is not None and position > self._end:
            self._is_over = True
            return False
        if self._stopped is None and (self._spent < self._limit or not self._is_begun):
            return True
        self._stopped = self._stopped or position
        return False

    def block(self, position: QueuePosition) -> None:
        """Go on in the next cycle with this job, which waits for the API server and starts before
        all behind it. The front is evaluated in each cycle anyway."""
        if self._is_begun and not self._stopped and not self._is_extra:
            self._stopped, self._is_blocked = position, True

    def count(self, work: EvaluationWork) -> None:
        """Count an evaluated job. A job whose evaluation raises is not counted, as it must not
        affect others."""
        if self._is_extra:
            self._extra += work.own
            return
        self._is_begun |= not self._is_front
        self._spent += work.own
        for key, shared in work.shared:
            if key not in self._shared:
                self._shared.add(key)
                self._spent += shared

    @property
    def _is_front(self) -> bool:
        return self._spent < self._limit * FRONT // 100 or not self._spent


def evaluation_work(verdict: Verdict, cluster: Cluster, *, starts: int) -> EvaluationWork:
    """What it takes to evaluate a job to this verdict, after so many ``starts`` in this cycle.

    Feasibility is computed once for each kind of role, and again once others start. The selection
    of nodes is work of each job.
    """
    nodes, levels = len(cluster.nodes), len(cluster.domains.bounds)
    demands, refusal = verdict.candidate.demands, verdict.candidate.refusal
    chooses = refusal is None or verdict.reserved
    own, shared = JOB + verdict.searched, list[tuple[Hashable, int]]()
    for demand in demands:
        role, signature, way = demand.role, demand.signature, demand.ways[0]
        masks = MASKS + 2 * len(signature.request.rows) + len(role.selector)
        describing = CALLS * CALL + nodes * masks + len(role.tolerations) * TOLERATION
        if role.affinity is not None:
            describing += role.affinity.size * (TOLERATION + nodes // 4)
        split = CALL + nodes if way.takes_all else CALLS * CALL + nodes * SPLIT
        fitting = len(demand.ways) * split * levels
        if chooses:
            own += CALLS * CALL + nodes * CHOICE + 2 * fitting
        shared.append((signature.index, describing))
        shared.append(((signature.index, way, role.replicas, starts), 3 * fitting))
    return EvaluationWork(own, tuple(shared))
