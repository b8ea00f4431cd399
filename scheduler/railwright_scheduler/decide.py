"""The one decision: every job in turn starts whole, or waits and is told why.

``decide`` is a pure function of the snapshot's contents. The order in which nodes, jobs and queues
are listed in it, and the hash seed of the process, do not reach the answer.
"""

from __future__ import annotations

from collections.abc import Iterable

from railwright_scheduler import cluster, order, terms
from railwright_scheduler.cluster import Cluster
from railwright_scheduler.decisions import (
    Admit,
    Decisions,
    QueueMissing,
    Reason,
    TierMissing,
    Wait,
)
from railwright_scheduler.fit import Shapes
from railwright_scheduler.line import Line
from railwright_scheduler.snapshot import Job, Snapshot


def decide(snapshot: Snapshot) -> Decisions:
    """Decide for every job of the snapshot whether it starts now, and where.

    Raises ValueError, with the field and the value, for a snapshot that cannot be: two nodes or
    jobs of one name, a gang of no nodes, amounts out of range, domains that miss a level.
    """
    _check((*snapshot.jobs, *snapshot.returning))
    floor = cluster.of(snapshot)
    shapes = Shapes(floor)
    line = Line(floor, snapshot.running)
    queues = tuple(sorted(set(snapshot.queues)))
    returning = frozenset(job.uid for job in snapshot.returning)
    admitted: list[Admit] = []
    waiting: list[Wait] = []
    for job in order.by_turn((*snapshot.jobs, *snapshot.returning)):
        returns = job.uid in returning
        verdict = _judge(job, queues, floor=floor, shapes=shapes, line=line, returns=returns)
        if isinstance(verdict, Admit):
            admitted.append(verdict)
        elif verdict is not None:
            waiting.append(Wait(job.uid, verdict))
    return Decisions(admitted=tuple(admitted), waiting=tuple(waiting))


def _judge(
    job: Job, queues: tuple[str, ...], *, floor: Cluster, shapes: Shapes, line: Line, returns: bool
) -> Admit | Reason | None:
    if job.queue not in queues:
        return QueueMissing(queue=job.queue, existing=queues)
    limits = terms.limits(job.terms, floor)
    if isinstance(limits, TierMissing):
        return limits
    shape = shapes.of(job)
    ways = terms.alike(limits, floor) if job.terms.aligned else [limits]
    largest = max(ways, key=lambda way: shapes.capacity(shape, way))
    if shapes.capacity(shape, largest) < job.num_nodes:
        return shapes.never_fits(job, shape, largest)
    if returns:
        line.keep(job, shape, largest)
        return None
    started = line.start(job, shape, line.nearest(job, shape, ways))
    return started or line.hold(job, shape, largest)


def _check(jobs: Iterable[Job]) -> None:
    seen: dict[str, Job] = {}
    for job in jobs:
        if job.uid in seen:
            twin = seen[job.uid]
            raise ValueError(
                f"jobs: uid {job.uid!r} is there twice ({twin.namespace}/{twin.name} and "
                f"{job.namespace}/{job.name}), expected unique uids"
            )
        seen[job.uid] = job
        if job.num_nodes < 1:
            raise ValueError(
                f"job {job.namespace}/{job.name}: num_nodes is {job.num_nodes}, expected at least 1"
            )
        if job.terms.segment and job.num_nodes % job.terms.segment:
            raise ValueError(
                f"job {job.namespace}/{job.name}: num_nodes is {job.num_nodes}, expected a "
                f"multiple of its segments of {job.terms.segment}"
            )
