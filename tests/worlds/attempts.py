"""Attempts as words: a gang's pods in one line, ranks and jobs that are well until said otherwise.

``pods("n0 - . n3~ n4!")`` is rank 0 bound to n0, rank 1 made but not bound, no pod of rank 2, rank
3's pod being deleted on n3, rank 4's ended on n4.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from railwright_scheduler import Node
from railwright_scheduler.attempt.assessment import Crash, PodState, RankSeen
from railwright_scheduler.attempt.causes import Cause, CauseCode
from railwright_scheduler.attempt.gang import GangSeen, Pod
from railwright_scheduler.attempt.ledger import Entry, EntryState, Ledger
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.world import AttemptSeen, JobSeen, World
from worlds.jobs import GPU, job

NODES = ("n0", "n1")
FAILED = Cause(CauseCode.RANK_FAILED, "rank 1 on n1 exited with 1", rank=1, exit_code=1)
LOST = Cause(CauseCode.NODE_LOST, "node n1 is lost", nodes=("n1",))
REFUSED = Cause(CauseCode.COMMIT_REFUSED, "quota")
SUSPENDED = Cause(CauseCode.SUSPENDED, "spec.suspend was set")
RUNNING = JobRecord(phase=Phase.RUNNING, attempt=1, nodes=NODES)
RECOVERING = JobRecord(phase=Phase.RECOVERING, attempt=1, ended=1, restarts=1)


def entry(attempt: int = 1, *, cause: Cause | None = None, **changes: Any) -> Entry:
    """An attempt of job a on two whole nodes: committing, or aborting if there is a cause."""
    plain = Entry(
        job_uid="a",
        namespace="team",
        job_name="a",
        attempt=attempt,
        state=EntryState.COMMITTING if cause is None else EntryState.ABORTING,
        nodes=NODES,
        per_node={GPU: 8, "pods": 1},
        cause=cause,
    )
    return replace(plain, **changes)


def pods(text: str, *, attempt: int = 1) -> tuple[Pod, ...]:
    """The pods of one attempt of job a, one word a rank."""
    return tuple(
        Pod(
            name=f"a-{attempt}-{rank}",
            uid=f"u{attempt}{rank}",
            node_rank=rank,
            node=word.rstrip("~!").replace("-", ""),
            terminal=word.endswith("!"),
            deleting=word.endswith("~"),
            amounts={GPU: 8, "pods": 1},
        )
        for rank, word in enumerate(text.split())
        if word != "."
    )


def gang_seen(text: str, **changes: Any) -> GangSeen:
    """What is seen of an attempt with these pods, placed and not recorded yet."""
    plain = GangSeen(
        pods=pods(text),
        placed=True,
        stop=None,
        refusal=None,
        misfits={},
        scattered="",
        stalled_s=1.0,
        recorded_attempt=0,
        recorded_end=0,
    )
    return replace(plain, **changes)


def rank(node_rank: int, **changes: Any) -> RankSeen:
    """A rank that runs and was heard a second ago."""
    plain = RankSeen(node_rank, f"n{node_rank}", PodState.RUNNING, silent_s=1.0)
    return replace(plain, **changes)


def crash(node_rank: int, age_s: float, **changes: Any) -> RankSeen:
    """A rank that exited with 1 so long ago."""
    crashed = Crash(rank=node_rank, exit_code=1, age_s=age_s)
    return rank(node_rank, pod=PodState.FAILED, crash=crashed, **changes)


def seen(record: JobRecord | None = None, *, name: str = "a", **changes: Any) -> JobSeen:
    """A job of two whole nodes, all of its ranks well, long after anything ended."""
    record = record or JobRecord()
    plain = JobSeen(
        job=job(name, num_nodes=2),
        suspend=False,
        backoff_limit=3,
        record=record,
        ranks=tuple(rank(r, node=node) for r, node in enumerate(record.nodes)),
        started=record.live,
        ended_age_s=1000.0,
    )
    return replace(plain, **changes)


def world_of(
    *jobs: JobSeen,
    nodes: tuple[Node, ...],
    levels: tuple[str, ...] = (),
    entries: tuple[Entry, ...] = (),
    attempts: dict[tuple[str, int], AttemptSeen] | None = None,
) -> World:
    """All that a turn depends on: one queue, one leader in its third epoch."""
    ledger = Ledger(epoch=3, incarnation="x", holder="me", entries=entries)
    return World(
        ledger=ledger,
        levels=levels,
        nodes=nodes,
        queues=("default",),
        jobs=jobs,
        attempts=attempts or {},
    )
