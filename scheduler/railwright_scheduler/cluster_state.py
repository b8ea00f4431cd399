"""The state of a scheduling cycle as one value: jobs, their attempts, nodes, the ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from railwright_scheduler.attempt.breaker import CLOSED, Breaker
from railwright_scheduler.attempt.failure_policy import FailurePolicy
from railwright_scheduler.attempt.gang import Pod
from railwright_scheduler.attempt.hang import UNWATCHED, Watch
from railwright_scheduler.attempt.ledger import AttemptKey, Entry, EntryState, Ledger
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.attempt.starting import START_TIMEOUT_S
from railwright_scheduler.model.evidence import ObservedRank
from railwright_scheduler.model.reasons import Reason
from railwright_scheduler.model.snapshot import Job, Node, QueueRound, SendingJob, sending_job
from railwright_scheduler.policy.mappings import RequestedMapping
from railwright_topology.links import Links


@dataclass(frozen=True, slots=True)
class Progress:
    """The reported progress of an attempt: steps done, and the total if known."""

    step: int
    total_steps: int | None = None


@dataclass(frozen=True, slots=True)
class ObservedPreRun:
    """The pre-run that the user of a job wants, made from the spec with this ``spec_hash``.

    ``profiled``: there is a profile that the job is mapped by, so that none is needed. ``error`` is
    why what its ranks recorded cannot be that profile.
    """

    spec_hash: str
    profiled: bool = False
    error: str = ""


@dataclass(frozen=True, slots=True)
class ObservedJob:
    """One job in the API, and its live attempt by all sources.

    ``record`` is the one in its status. ``active_deadline_s`` is how long after its start it may
    last; None for as long as it takes. ``held`` keeps it out of the queue. ``ranks`` has one row
    for each node rank of the live attempt; ``bound_age_s`` counts since its gang was first observed
    bound (its ranks may take ``start_timeout_s`` to the barrier), ``ended_age_s`` since the end of
    the last attempt was first observed. ``spec_hash`` (version-digest) changes whenever its pods
    would be different. ``topology_hash`` is that of the links and node speeds under which the
    placement of the live attempt was last found to be the best; empty if unknown. ``progress`` is
    the last report of the live attempt; None before. ``watch`` has the other inputs of hang
    detection. ``pre_run`` is None if the job requests none.
    """

    job: Job
    suspend: bool
    failure_policy: FailurePolicy
    record: JobRecord
    active_deadline_s: int | None = None
    ranks: tuple[ObservedRank, ...] = ()
    started: bool = False
    bound_age_s: float = 0.0
    start_timeout_s: float = START_TIMEOUT_S
    ended_age_s: float = 0.0
    held: Reason | None = None
    spec_hash: str = ""
    topology_hash: str = ""
    progress: Progress | None = None
    watch: Watch = UNWATCHED
    pre_run: ObservedPreRun | None = None


@dataclass(frozen=True, slots=True)
class ObservedAttempt:
    """What the API shows of one attempt.

    ``age_s`` counts since it was first seen in the ledger, or over; it is 0 while it runs.
    ``stalled_s`` counts since its commit last came further or was kept waiting for those of others.
    ``is_binding`` is true while a request to bind one of its pods is in flight.
    """

    pods: tuple[Pod, ...] = ()
    placed: bool = False
    refusal: str | None = None
    hindrance: str = ""
    age_s: float = 0.0
    stalled_s: float = 0.0
    is_binding: bool = False

    @property
    def has_begun_to_bind(self) -> bool:
        """Whether a pod is bound, or may be before this plan is carried out."""
        return self.is_binding or any(pod.node for pod in self.pods)


@dataclass(frozen=True, slots=True)
class DeletedAttempt:
    """The live attempt of a job that is being deleted, with the node of each pod."""

    job_uid: str
    namespace: str
    job_name: str
    attempt: int
    nodes: tuple[str, ...]

    @property
    def key(self) -> AttemptKey:
        """The job's UID and the attempt."""
        return self.job_uid, self.attempt


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The complete input of a plan. ``used`` of the nodes counts live bound pods only; ``queues``
    are the names of those that exist.

    ``attempts`` has every attempt of the ledger, and all others with pods that have not ended
    (``observed_attempts``). The state of a leader must begin with lists that it requested
    after it wrote its epoch, and must not go back: only this leader can bind a pod that it has not
    observed by then.

    ``topology_hash`` changes with links and node speeds; it is empty where they are not observed.
    ``topology_age_s`` counts since this leader last observed a change.

    ``reservations`` and ``waits`` are those of the last cycle, by job UID, and ``queue_round``
    is where in the queue that stopped; a new leader has none of them. ``mappings`` are those that
    earlier cycles requested, with None all are computed at once.
    ``deleted`` are the live attempts of jobs that are being deleted, which are not in ``jobs``.
    ``breaker`` is whether the silence of nodes is evidence now. ``now_s`` is this leader's wall
    clock, in seconds since 1970, by which it dates what outlives it.
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
    mappings: Mapping[str, RequestedMapping] | None = None
    deleted: tuple[DeletedAttempt, ...] = ()
    breaker: Breaker = CLOSED
    now_s: int = 0


def observed_attempts(
    ledger: Ledger,
    with_pods: Mapping[AttemptKey, ObservedAttempt],
    *,
    ended: Mapping[str, int],
    add_ages: Callable[[AttemptKey, tuple[Pod, ...]], ObservedAttempt],
) -> dict[AttemptKey, ObservedAttempt]:
    """The attempts of the ledger, and all others with a pod that has not ended.

    ``with_pods`` are all attempts that have pods, with these alone: a running attempt has nothing
    more, the others get their ages, and what became of requests, from ``add_ages``. ``ended`` is
    the last ended attempt of each job.
    """
    nothing = ObservedAttempt()
    found = {
        each.key: add_ages(each.key, with_pods.get(each.key, nothing).pods)
        for each in ledger.entries
    }
    for key, seen in with_pods.items():
        if key not in found and any(not pod.terminal for pod in seen.pods):
            is_over = key[1] <= ended.get(key[0], 0)
            found[key] = add_ages(key, seen.pods) if is_over else seen
    return found


def sending_jobs(
    jobs: Iterable[ObservedJob], entries: Mapping[str, tuple[Entry, ...]]
) -> Iterator[SendingJob]:
    """The jobs that send from node to node, or are about to, and of which it is known what they do;
    ``entries`` are those of each job."""
    for seen in jobs:
        job, nodes = seen.job, seen.record.nodes if seen.record.live else ()
        for entry in entries.get(job.uid, ()):
            if entry.state is EntryState.COMMITTING:
                nodes = entry.nodes
            elif entry.attempt == seen.record.attempt:
                nodes = ()
        sends = sending_job(job, nodes)
        if sends is not None:
            yield sends
