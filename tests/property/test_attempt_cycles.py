"""A plan depends on the content of the state, not on its order."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from fixtures import GPU, node
from fixtures.attempts import crash, entry, rank, seen, world_of
from railwright_scheduler import plan as scheduling
from railwright_scheduler.attempt.causes import Cause, CauseCode
from railwright_scheduler.attempt.failure_policy import FailurePolicy
from railwright_scheduler.attempt.gang import DeletePod, Pod
from railwright_scheduler.attempt.ledger import EntryState
from railwright_scheduler.attempt.phases import EDGES, FINAL, Phase
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.cluster_state import ClusterState, ObservedAttempt, ObservedJob
from railwright_scheduler.model.snapshot import Unavailable

NAMES = ("n0", "n1", "n2", "n3")
PAIRS = st.lists(st.sampled_from(NAMES), min_size=2, max_size=2, unique=True).map(tuple)
CAUSES = st.builds(
    Cause,
    st.sampled_from(CauseCode),
    st.just("why"),
    nodes=st.sampled_from(((), ("n1",))),
)
RECORDS = st.one_of(
    st.just(JobRecord()),
    st.just(JobRecord(phase=Phase.SUSPENDED)),
    st.builds(
        JobRecord,
        phase=st.sampled_from((Phase.STARTING, Phase.RUNNING)),
        attempt=st.just(1),
        nodes=PAIRS,
    ),
    st.builds(
        JobRecord,
        phase=st.sampled_from((Phase.RECOVERING, Phase.QUEUED, Phase.SUSPENDED, *sorted(FINAL))),
        attempt=st.just(1),
        ended=st.just(1),
        failures=st.integers(0, 1),
    ),
)


@st.composite
def job_pods(draw: DrawFn, name: str) -> tuple[Pod, ...]:
    """Two pods at most, in any state."""
    return tuple(
        Pod(
            name=f"{name}-1-{r}",
            uid=f"{name}{r}",
            node_rank=r,
            node=draw(st.sampled_from(("", *NAMES))),
            terminal=draw(st.booleans()),
            deleting=draw(st.booleans()),
            amounts={GPU: 8},
        )
        for r in range(2)
        if draw(st.booleans())
    )


@st.composite
def worlds(draw: DrawFn) -> ClusterState:
    """Up to three jobs anywhere in their lives, on four nodes."""
    jobs: list[ObservedJob] = []
    entries = []
    attempts = {}
    for name in ("a", "b", "c")[: draw(st.integers(0, 3))]:
        record = draw(RECORDS)
        ranks = [
            draw(st.sampled_from((rank(r), crash(r, 2.0), rank(r, done=True)))) for r in (0, 1)
        ]
        job = seen(
            record,
            name=name,
            suspend=draw(st.booleans()),
            failure_policy=FailurePolicy(draw(st.integers(1, 2)), 300),
            ranks=tuple(ranks) if record.nodes else (),
            started=draw(st.booleans()),
            ended_age_s=draw(st.sampled_from((0.0, 1000.0))),
        )
        jobs.append(job)
        cause = draw(CAUSES) if record.ended else draw(st.none() | CAUSES)
        # The ledger has it in hand, except where it never began, runs, or is over for good.
        if draw(st.booleans()) and record.phase not in (*FINAL, Phase.RUNNING, Phase.SUSPENDED):
            nodes = record.nodes or draw(PAIRS)
            entries.append(replace(entry(cause=cause, nodes=nodes), job_uid=name, job_name=name))
        attempts[name, 1] = ObservedAttempt(draw(job_pods(name)), placed=draw(st.booleans()))
    floor = tuple(
        node(n, used={GPU: draw(st.sampled_from((0, 0, 4, 8)))}, unavailable=draw(_STATES))
        for n in NAMES
    )
    world = world_of(*jobs, nodes=floor, attempts=attempts)
    return replace(world, ledger=world.ledger.with_entries(entries))


_STATES = st.sampled_from((None, None, None, *Unavailable))


@given(worlds(), st.randoms(use_true_random=False))
def test_order_of_the_state_does_not_matter(world: ClusterState, rng: random.Random) -> None:
    expected = scheduling.plan(world)
    shuffled = replace(
        world,
        nodes=tuple(rng.sample(world.nodes, len(world.nodes))),
        jobs=tuple(
            replace(job, ranks=tuple(rng.sample(job.ranks, len(job.ranks))))
            for job in rng.sample(world.jobs, len(world.jobs))
        ),
        attempts={
            key: replace(attempt, pods=tuple(rng.sample(attempt.pods, len(attempt.pods))))
            for key, attempt in rng.sample(list(world.attempts.items()), len(world.attempts))
        },
    )
    assert repr(scheduling.plan(shuffled)) == repr(expected)


@given(worlds())
def test_cycle_keeps_the_epoch_and_the_order_of_entries(world: ClusterState) -> None:
    ledger = scheduling.plan(world).ledger
    assert (ledger.epoch, ledger.holder) == (world.ledger.epoch, world.ledger.holder)
    assert list(ledger.entries) == sorted(ledger.entries, key=lambda entry: entry.key)


@given(worlds())
def test_no_cycle_takes_back_an_abort(world: ClusterState) -> None:
    after = {entry.key: entry for entry in scheduling.plan(world).ledger.entries}
    for written in world.ledger.entries:
        if written.state is EntryState.ABORTING:
            assert after.get(written.key, written) == written


@given(worlds())
def test_only_pods_of_recorded_ends_are_deleted(world: ClusterState) -> None:
    taken = scheduling.plan(world)
    aborting = {e.key for e in taken.ledger.entries if e.state is EntryState.ABORTING}
    ended = {job.job.uid: job.record.ended for job in world.jobs}
    for action in taken.actions:
        if isinstance(action, DeletePod):
            uid, attempt = action.entry.key
            assert action.entry.key in aborting or attempt <= ended[uid]


@given(worlds())
def test_a_new_attempt_has_a_number_that_none_had_before(world: ClusterState) -> None:
    before = {entry.key for entry in world.ledger.entries}
    records = {job.job.uid: job.record for job in world.jobs}
    for entry_ in scheduling.plan(world).ledger.entries:
        if entry_.key not in before and entry_.state is EntryState.COMMITTING:
            assert entry_.attempt > records[entry_.job_uid].attempt


@given(worlds())
def test_records_move_only_along_the_table(world: ClusterState) -> None:
    taken = scheduling.plan(world)
    for job in world.jobs:
        assert taken.records[job.job.uid].phase in _reachable(job.record.phase)


@given(worlds())
def test_committed_gangs_fit_their_nodes(world: ClusterState) -> None:
    taken = scheduling.plan(world)
    fresh = {entry.key for entry in world.ledger.entries}
    capacity = {node.name: 8 - node.used.get(GPU, 0) for node in world.nodes}
    available = {node.name for node in world.nodes if node.unavailable is None}
    for entry_ in taken.ledger.entries:
        if entry_.key not in fresh and entry_.state is EntryState.COMMITTING:
            for name in entry_.nodes:
                capacity[name] -= 8
                assert name in available
                assert capacity[name] >= 0


def _reachable(source: Phase) -> set[Phase]:
    reached = {source}
    for _ in Phase:
        reached |= {target for start, target in EDGES if start in reached}
    return reached
