"""All that a turn depends on, as one value: jobs, their attempts, nodes, the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from railwright_scheduler.attempt.assessment import ObservedRank
from railwright_scheduler.attempt.breaker import CLOSED, Breaker
from railwright_scheduler.attempt.gang import Pod
from railwright_scheduler.attempt.hang import UNWATCHED, Watch
from railwright_scheduler.attempt.ledger import AttemptKey, Entry, EntryState, Ledger
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.attempt.starting import START_TIMEOUT_S
from railwright_scheduler.model.decisions import Reason
from railwright_scheduler.model.snapshot import Job, Node, QueueRound, RunningJob
from railwright_topology.links import Links


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an attempt says it is: steps done, and steps to do, if that is known."""

    step: int
    total_steps: int | None = None


@dataclass(frozen=True, slots=True)
class ObservedJob:
    """One job as the API shows it, and its live attempt as all witnesses show it.

    ``record`` is what its status is known to carry. ``held`` keeps it out of the queue whatever
    fits. ``ranks`` has one row for each node rank of the live attempt; ``bound_age_s`` counts since
    its gang was first seen bound (its ranks may take ``start_timeout_s`` to be at the barrier),
    ``ended_age_s`` since the last attempt's end was first seen. ``spec_hash`` (version-digest)
    changes whenever its pods would be made otherwise. ``progress`` is what the live attempt's ranks
    reported last; None before. ``watch`` is what else its steps are judged by.
    """

    job: Job
    suspend: bool
    backoff_limit: int
    record: JobRecord
    ranks: tuple[ObservedRank, ...] = ()
    started: bool = False
    bound_age_s: float = 0.0
    start_timeout_s: float = START_TIMEOUT_S
    ended_age_s: float = 0.0
    held: Reason | None = None
    spec_hash: str = ""
    progress: Progress | None = None
    watch: Watch = UNWATCHED


@dataclass(frozen=True, slots=True)
class ObservedAttempt:
    """What the API shows of one attempt.

    ``age_s`` counts since it was first seen in the ledger, ``stalled_s`` since its commit last came
    further or was kept waiting for those of others.
    """

    pods: tuple[Pod, ...] = ()
    placed: bool = False
    refusal: str | None = None
    hindrance: str = ""
    age_s: float = 0.0
    stalled_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ClusterState:
    """All that a plan depends on. ``used`` of the nodes counts live bound pods only.

    ``attempts`` has every attempt of the ledger and every other that has pods: those that run, and
    those whose pods should not be there. What a leader sees must begin with lists that it asked for
    after it wrote its epoch, and never go back: a pod that it has not seen by then can be bound by
    nobody but itself.

    ``topology_hash`` changes with links and node speeds; it is empty where they are not observed.
    ``topology_age_s`` counts since this leader last saw it change.

    ``reservations`` and ``waits`` are those of the last cycle, by job UID, and ``queue_round``
    is where in the queue that stopped; a new leader has none of them.
    ``breaker`` says whether the silence of nodes proves anything now.
    """

    ledger: Ledger
    levels: tuple[str, ...]
    nodes: tuple[Node, ...]
    queues: tuple[str, ...]
    jobs: tuple[ObservedJob, ...]
    attempts: Mapping[AttemptKey, ObservedAttempt]
    links: tuple[Links, ...] = ()
    topology_hash: str = ""
    topology_age_s: float = 0.0
    reservations: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    waits: Mapping[str, Reason] = field(default_factory=dict)
    queue_round: QueueRound | None = None
    breaker: Breaker = CLOSED


def running(
    jobs: Iterable[ObservedJob], entries: Mapping[str, tuple[Entry, ...]]
) -> Iterator[RunningJob]:
    """The jobs that send from node to node, or are about to, and of which it is known what they do;
    ``entries`` are those of each job."""
    for seen in jobs:
        job, nodes = seen.job, seen.record.nodes if seen.record.live else ()
        for entry in entries.get(job.uid, ()):
            if entry.state is EntryState.COMMITTING:
                nodes = entry.nodes
            elif entry.attempt == seen.record.attempt:
                nodes = ()
        # Another number of nodes than it asks for now says that it is to end.
        if job.workload is not None and job.num_nodes == len(nodes) > 1:
            yield RunningJob(job.workload, job.ranks_per_node, nodes, job.uid)
