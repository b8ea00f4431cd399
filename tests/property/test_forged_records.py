"""Whatever a status claims, the turn goes on: for this job, and for every other one.

A status can be written by whoever has the right to, or be older than the ledger.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from fixtures import GPU, node
from fixtures.attempts import entry, pods, rank, seen, world_of
from fixtures.examples import examples
from railwright_scheduler import cluster_state
from railwright_scheduler import plan as scheduling
from railwright_scheduler.attempt.causes import Cause, CauseCode
from railwright_scheduler.attempt.ledger import Entry
from railwright_scheduler.attempt.phases import FINAL, Phase
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.cluster_state import ClusterState, ObservedAttempt

NODES = ("n0", "n1", "n2", "n3", "gone")
CAUSES = st.builds(Cause, st.sampled_from(CauseCode), st.just("why"))
LINES = st.sampled_from((". .", "- -", "n0 -", "n0 n1", "n0~ n1!", "n2 n3", "n0! n1!"))
TURNS = 6


@st.composite
def claims(draw: DrawFn) -> JobRecord:
    """Any record that does not contradict itself."""
    phase = draw(st.sampled_from(Phase))
    live = phase in (Phase.STARTING, Phase.RUNNING)
    ended = draw(st.sampled_from((0, 1, 2, 3, 4, 999_000)))
    names = draw(st.lists(st.sampled_from(NODES), min_size=1, max_size=3))
    return JobRecord(
        phase=phase,
        attempt=ended + live,
        ended=ended,
        nodes=tuple(names) if live or phase is Phase.SUCCEEDED else (),
        restarts=draw(st.integers(0, 9)),
        failures=draw(st.integers(0, 9)),
        start_failures=draw(st.integers(0, 9)),
        hangs=draw(st.integers(0, 9)),
        failure_times_s=tuple(draw(st.lists(st.integers(-9, 10**12), max_size=101))),
        last_termination=draw(st.none() | CAUSES),
        started_s=draw(st.none() | st.integers(-9, 10**12)),
    )


@st.composite
def in_flight(draw: DrawFn) -> tuple[Entry, ...]:
    """Entries as the ledger may have them of one job: aborting ones, then one that commits."""
    over = draw(st.lists(CAUSES, max_size=2))
    entries = [entry(number + 1, cause=cause) for number, cause in enumerate(over)]
    if draw(st.booleans()):
        entries.append(entry(len(over) + 1))
    return tuple(entries)


@st.composite
def worlds(draw: DrawFn) -> ClusterState:
    """Job a, of which the status claims anything, and job b, which only waits."""
    record = draw(claims())
    ranks = tuple(rank(r, node=name) for r, name in enumerate(record.nodes))
    suspend, started = draw(st.booleans()), draw(st.booleans())
    deadline_s = draw(st.none() | st.integers(1, 99))
    job = seen(record, ranks=ranks, suspend=suspend, started=started, active_deadline_s=deadline_s)
    entries = draw(in_flight())
    attempts = {
        ("a", number): ObservedAttempt(
            pods(draw(LINES), attempt=number), placed=draw(st.booleans())
        )
        for number in (1, 2, 3, record.attempt)
    }
    floor = tuple(node(name, used={GPU: draw(st.sampled_from((0, 8)))}) for name in NODES[:4])
    jobs = (job, seen(name="b"))
    return world_of(*jobs, nodes=floor, entries=entries, attempts=attempts)


@settings(deadline=None, max_examples=examples(300))
@given(worlds())
def test_no_forged_status_stops_any_cycle(world: ClusterState) -> None:
    for _ in range(TURNS):
        taken = scheduling.plan(world)
        _check_devices(taken.ledger.entries, world)
        jobs = tuple(_recorded(job, taken.records[job.job.uid]) for job in world.jobs)
        world = replace(world, ledger=taken.ledger, jobs=jobs)
    final = taken.records["a"].phase in FINAL
    its = [each for each in taken.ledger.entries if each.job_uid == "a"]
    assert not (final and any(each.cause is None for each in its))


def _recorded(job: cluster_state.ObservedJob, record: JobRecord) -> cluster_state.ObservedJob:
    ranks = tuple(rank(r, node=name) for r, name in enumerate(record.nodes))
    return replace(job, record=record, ranks=ranks if record.live else ())


def _check_devices(entries: tuple[Entry, ...], world: ClusterState) -> None:
    """No node is promised to two new gangs, or to one while its devices are used."""
    in_flight = {each.key for each in world.ledger.entries}
    new = [each for each in entries if each.key not in in_flight and each.cause is None]
    promised = [name for each in new for name in each.nodes]
    used = {each.name for each in world.nodes if each.used.get(GPU)}
    assert len(set(promised)) == len(promised), promised
    assert not used & set(promised), promised
