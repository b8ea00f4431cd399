"""When a running job is ended to run where a step takes less time: it has to pay, and to wait."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fixtures import GPU, job, node
from fixtures import seen as profiles
from fixtures.attempts import pods, rank, seen, world_of
from fixtures.jobs import with_role
from railwright_scheduler import migration, pending
from railwright_scheduler import plan as scheduling
from railwright_scheduler.attempt.causes import MESSAGE_LENGTH_MAX, Cause, CauseCode
from railwright_scheduler.attempt.ledger import EntryState
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.attempt.resume_points import ResumePoint
from railwright_scheduler.cluster_state import ClusterState, ObservedAttempt, ObservedJob, Progress
from railwright_scheduler.model.reasons import LedgerFull, PriorityClassNotFound
from railwright_scheduler.model.snapshot import Job, Node, Unavailable
from railwright_scheduler.model.workload import Parallelism, Recipe, Transformer, Workload
from railwright_scheduler.policy import ranks
from railwright_topology.links import Links
from railwright_topology.relative_speed import RelativeSpeed

GPT = Transformer(
    layers=8,
    hidden=2048,
    heads=16,
    kv_heads=16,
    head_size=128,
    feed_forward=8192,
    vocabulary=51_200,
)
WORKLOAD = Workload(GPT, Parallelism(tensor=8, data=4), Recipe(2048, 1, 8))
"""Four nodes that sum up gradients in one ring."""

NARROW = {"r0": 2.0, "r1": 0.1, "r2": 2.0}
HERE = ("r0a", "r0b", "r1a", "r1b")
THERE = ("r0a", "r0b", "r2a", "r2b")


def racks(*taken: str, count: int = 3) -> tuple[Node, ...]:
    """Racks of two machines."""
    names = [f"r{rack}{at}" for rack in range(count) for at in "ab"]
    return tuple(
        node(name, name[:2], machine="DGX A100", used={GPU: 8} if name in taken else {})
        for name in names
    )


def training(name: str = "a", **changes: Any) -> Job:
    return job(name, replicas=4, ranks_per_pod=8, workload=WORKLOAD, **changes)


def running(nodes: tuple[str, ...] = HERE, **changes: Any) -> ObservedJob:
    """A job that runs since long on two racks, and has just written a checkpoint."""
    record = JobRecord(
        Phase.RUNNING, attempt=1, nodes=nodes, checkpoints=(ResumePoint("worker", 1, 1000),)
    )
    record = replace(record, **changes.pop("record", {}))
    plain = seen(record, name=changes.pop("name", "a"))
    progress = Progress(1000, total_steps=1_000_000)
    plain = replace(plain, job=training(plain.job.name), bound_age_s=1e6, progress=progress)
    return replace(plain, **{"topology_hash": "before"} | changes)


def world(*jobs: ObservedJob, links: dict[str, float] = NARROW, **changes: Any) -> ClusterState:
    """What is known has been so for a minute: the uplinks of the second rack are narrow."""
    taken = [name for each in jobs for name in each.record.nodes]
    narrow = (Links(leaving=links),)
    plain = world_of(*jobs, nodes=racks(*taken), levels=("rack",))
    settled: dict[str, Any] = {"links": narrow, "topology_hash": "now", "topology_age_s": 60.0}
    return replace(plain, **settled | changes)


def ended(taken: scheduling.Plan, *, ago_s: float = 1.0) -> ObservedJob:
    """The job that this cycle ended, this long ago."""
    return replace(running(), record=taken.records["a"], ranks=(), progress=None, ended_age_s=ago_s)


def moved(seen_now: ClusterState) -> str:
    """Why the one entry of this cycle's ledger ends its attempt; empty if there is none."""
    entries = scheduling.plan(seen_now).ledger.entries
    if not entries:
        return ""
    (entry,) = entries
    assert entry.cause is not None
    assert entry.cause.code is CauseCode.REMAPPED
    return entry.cause.message


def evaluated_topology(seen_now: ClusterState, uid: str = "a") -> str:
    return scheduling.plan(seen_now).topology_hashes[uid]


def test_a_job_moves_when_the_uplinks_it_waits_for_got_narrow() -> None:
    message = moved(world(running()))
    assert message.startswith("the uplinks of r1 have the bandwidth of 0.1 nodes, for 2 ")
    assert "if 2 of 4 node ranks move (2 to r2a, 3 to r2b)" in message
    record = scheduling.plan(world(running())).records["a"]
    assert (record.phase, record.moves, record.restarts, record.failures) == (
        Phase.RECOVERING,
        1,
        1,
        0,
    )
    assert record.backoff_s == 0


def test_migrated_job_gets_its_target_once_pods_are_gone() -> None:
    first = scheduling.plan(world(running()))
    draining = {("a", 1): ObservedAttempt(pods=pods("r0a~ r0b! r1a! r1b!"))}
    over = ended(first)
    waits = world(over, ledger=first.ledger, attempts=draining)
    waits = replace(waits, nodes=racks("r0a"))
    second = scheduling.plan(waits)
    assert [entry.state for entry in second.ledger.entries] == [EntryState.ABORTING]
    assert second.records["a"].phase is Phase.RECOVERING
    gone = {("a", 1): ObservedAttempt(pods=pods("r0a! r0b! r1a! r1b!"))}
    (entry,) = scheduling.plan(replace(waits, nodes=racks(), attempts=gone)).ledger.entries
    assert (entry.state, entry.attempt, entry.nodes) == (EntryState.COMMITTING, 2, THERE)
    assert entry.topology_hash == "now"
    assert entry.score is not None
    assert entry.score.moved == 2


def test_node_lost_during_a_migration_does_not_delay_it() -> None:
    first = scheduling.plan(world(running()))
    stuck = {("a", 1): ObservedAttempt(pods=pods("r0a~ r0b! r1a! r1b!"))}
    over = ended(first)
    dead, *others = racks("r0a")
    nodes = (replace(dead, unavailable=Unavailable.UNREADY), *others)
    taken = scheduling.plan(world(over, ledger=first.ledger, attempts=stuck, nodes=nodes))
    (entry,) = (each for each in taken.ledger.entries if each.attempt == 2)
    assert "r0a" not in entry.nodes


def test_lingering_pod_delays_migrated_job_for_bounded_time() -> None:
    """A pod that is not deleted does not block the next attempt forever."""
    first = scheduling.plan(world(running()))
    stuck = {("a", 1): ObservedAttempt(pods=pods("r0a~ r0b! r1a! r1b!"))}
    for ago_s, starts in ((pending.DRAINED_S - 1.0, False), (pending.DRAINED_S + 1.0, True)):
        waits = world(ended(first, ago_s=ago_s), ledger=first.ledger, attempts=stuck)
        taken = scheduling.plan(replace(waits, nodes=racks("r0a")))
        assert any(entry.attempt == 2 for entry in taken.ledger.entries) is starts


def test_migrated_job_that_lost_a_node_waits_for_no_old_pods() -> None:
    first = scheduling.plan(world(running()))
    (moves,) = first.ledger.entries
    lost = replace(moves, attempt=2, cause=Cause(CauseCode.NODE_LOST, "r2a is lost"))
    record = replace(first.records["a"], attempt=2, ended=2, last_termination=lost.cause)
    over = replace(ended(first), record=record)
    ledger = replace(first.ledger, entries=(moves, lost))
    stuck = {("a", 1): ObservedAttempt(pods=pods("r0a~ r0b! r1a! r1b!"))}
    taken = scheduling.plan(world(over, ledger=ledger, attempts=stuck, nodes=racks("r0a")))
    assert any(entry.attempt == 3 for entry in taken.ledger.entries)


def test_migration_target_is_reserved_until_its_pods_are_gone() -> None:
    first = scheduling.plan(world(running()))
    assert first.reservations == {"a": THERE}
    draining = {("a", 1): ObservedAttempt(pods=pods("r0a~ r0b! r1a! r1b!"))}
    behind = seen(name="b", job=job("b", replicas=1, submitted_s=1))
    large = seen(name="b", job=job("b", replicas=3, submitted_s=1))
    for other, nodes in ((behind, ["r1a"]), (large, [])):
        both = world(
            ended(first),
            other,
            ledger=first.ledger,
            attempts=draining,
            nodes=racks("r0a"),
            reservations=first.reservations,
        )
        entries = [entry for entry in scheduling.plan(both).ledger.entries if entry.job_uid == "b"]
        assert [name for entry in entries for name in entry.nodes] == nodes


@pytest.mark.parametrize("ended_attempts", [1, 2], ids=["runs again", "is over"])
def test_moved_job_that_ran_again_reserves_nothing(ended_attempts: int) -> None:
    """A pod of the attempt before lingers on a node that is dead."""
    first = scheduling.plan(world(running()))
    phase = (Phase.RUNNING, Phase.SUCCEEDED)[ended_attempts - 1]
    record = JobRecord(phase, attempt=2, ended=ended_attempts, nodes=THERE, moves=1)
    other = seen(name="b", job=job("b", replicas=1, submitted_s=1))
    lingers = {("a", 1): ObservedAttempt(pods=pods("r0a~ r0b! r1a! r1b!"))}
    again = replace(ended(first), record=record)
    taken = scheduling.plan(world(again, other, ledger=first.ledger, attempts=lingers))
    assert taken.reservations == {}
    assert any(each.job_uid == "b" for each in taken.ledger.entries)


def test_job_that_stays_is_evaluated_once() -> None:
    wide = {"r0": 2.0, "r1": 2.0, "r2": 2.0}
    assert (
        moved(world(running(), links=wide)),
        evaluated_topology(world(running(), links=wide)),
    ) == ("", "now")
    soon_done = running(progress=Progress(1000, total_steps=1100))
    assert (moved(world(soon_done)), evaluated_topology(world(soon_done))) == ("", "now")
    evaluated = running(topology_hash="now")
    assert moved(world(evaluated)) == ""


@pytest.mark.parametrize(
    "changes",
    [
        {"progress": None},
        {"record": {"moves": 1}, "bound_age_s": 599.0},
        {"record": {"moves": 3}, "bound_age_s": 2399.0},
        {"progress": Progress(5000, total_steps=1_000_000)},
        {"ranks": tuple(rank(at, node=name, silent_s=8.0) for at, name in enumerate(HERE))},
        {"held": PriorityClassNotFound("gone", ())},
        {"record": {"spec_hash": "2-before"}, "spec_hash": ""},
    ],
)
def test_job_that_may_not_migrate_yet_is_evaluated_later(changes: dict[str, Any]) -> None:
    """Nothing was heard of it, it moved not long ago, it would lose work, some are silent, or it
    could not be started again."""
    waits = world(running(**changes))
    assert (moved(waits), evaluated_topology(waits)) == ("", "before")


@pytest.mark.parametrize(("moves", "pause_s"), [(0, 0.0), (1, 600.0), (3, 2400.0), (40, 86_400.0)])
def test_each_move_makes_the_next_one_wait_longer(moves: int, pause_s: float) -> None:
    assert migration.pause_s(moves) == pause_s


def test_topology_change_counts_after_a_minute() -> None:
    fresh = world(running(), topology_age_s=migration.SETTLED_S - 1.0)
    assert (moved(fresh), evaluated_topology(fresh)) == ("", "before")


def test_job_with_unknown_placement_basis_counts_as_well_placed() -> None:
    upgraded = world(running(topology_hash=""))
    assert (moved(upgraded), evaluated_topology(upgraded)) == ("", "now")


def test_no_job_migrates_that_would_queue_behind_others() -> None:
    large = seen(name="b", job=job("b", replicas=6, priority=1))
    assert moved(world(running(), large)) == ""
    never = seen(name="b", job=job("b", replicas=7, priority=1))
    assert moved(world(running(), never))
    assert moved(world(running(), replace(large, held=LedgerFull(6, 5, 1, 5)))) == ""
    assert moved(world(running(), replace(large, held=LedgerFull(6, 6, 1, 5))))
    failed = Cause(CauseCode.RANK_FAILED, "it failed")
    over = JobRecord(attempt=1, ended=1, failures=1, last_termination=failed)
    assert moved(world(running(), replace(large, record=over, ended_age_s=1.0))) == ""
    for gone in (
        replace(large, suspend=True),
        replace(large, record=replace(over, phase=Phase.FAILED)),
    ):
        assert moved(world(running(), gone))
    younger = seen(name="b", job=job("b", replicas=6, submitted_s=1))
    assert moved(world(running(), younger))


def test_one_job_moves_at_a_time() -> None:
    other = running(("r2a", "r2b"), name="b")
    other = replace(other, job=job("b", replicas=2))
    for phase in (Phase.RECOVERING, Phase.STARTING):
        live = phase is Phase.STARTING
        record = replace(
            other.record,
            phase=phase,
            attempt=2,
            ended=2 - live,
            nodes=other.record.nodes if live else (),
            last_termination=Cause(CauseCode.REMAPPED, "it moved"),
        )
        between = replace(other, record=record, ranks=other.ranks if live else (), suspend=False)
        taken = scheduling.plan(world(running(), between))
        assert taken.records["a"].phase is Phase.RUNNING
        assert taken.topology_hashes["a"] == "before"


def test_a_slow_node_is_named() -> None:
    """The cost model computes how much slower a step is; here it is only reported."""
    slow = tuple(
        replace(each, relative_speed=RelativeSpeed(products=0.5)) if each.name == "r1a" else each
        for each in racks(*HERE)
    )
    message = moved(world(running(), nodes=slow))
    assert " and r1a runs at 0.5 of the rate of its kind; " in message


def test_job_on_unknown_machines_stays() -> None:
    nodes = tuple(replace(each, machine="") for each in racks(*HERE))
    unknown = world(running(), nodes=nodes)
    assert (moved(unknown), evaluated_topology(unknown)) == ("", "now")


def test_an_unknown_end_is_taken_to_be_a_day_away() -> None:
    assert " of the remaining 24.0 h, " in moved(world(running(progress=Progress(1000))))


def spread(count: int, **changes: Any) -> list[ObservedJob]:
    """Jobs on two racks each."""
    return [
        running(tuple(f"r{2 * at + rack}{side}" for rack in (0, 1) for side in "ab"), **its)
        for at in range(count)
        for its in [{"name": f"j{at}", **changes}]
    ]


def test_migrations_assessed_per_cycle_are_bounded() -> None:
    jobs = spread(5)
    nodes = racks(*(name for each in jobs for name in each.record.nodes), count=10)
    first = world(*jobs, links={f"r{rack}": 2.0 for rack in range(10)}, nodes=nodes)
    hashes = scheduling.plan(first).topology_hashes
    evaluated = [uid for uid, each in hashes.items() if each == "now"]
    # Each is 64 and its nodes; one of them is another each second.
    assert len(evaluated) == 3
    assert {*evaluated} >= {"j0", "j1"}
    jobs = [replace(each, topology_hash=hashes[each.job.uid]) for each in jobs]
    second = scheduling.plan(replace(first, jobs=tuple(jobs)))
    assert {*second.topology_hashes.values()} == {"now"}


def test_every_job_is_evaluated_whatever_others_would_lose() -> None:
    jobs = [*spread(4, progress=Progress(1_001)), *spread(5, progress=Progress(1_900))[4:]]
    nodes = racks(*(name for each in jobs for name in each.record.nodes), count=10)
    first = world(*jobs, links={f"r{rack}": 2.0 for rack in range(10)}, nodes=nodes)
    evaluated = set[str]()
    for second in range(60):
        hashes = scheduling.plan(replace(first, topology_age_s=100.0 + second)).topology_hashes
        evaluated |= {uid for uid, each in hashes.items() if each == "now"}
    assert evaluated == {f"j{at}" for at in range(5)}


def test_jobs_on_one_node_count_as_work_too() -> None:
    alone = replace(WORKLOAD, split=Parallelism(tensor=8), recipe=Recipe(2048, 1, 2))
    nodes = racks(count=3)
    jobs = [
        replace(its, job=with_role(its.job, replicas=1, workload=alone))
        for each in nodes
        for its in [running((each.name,), name=each.name)]
    ]
    wide = {"r0": 2.0, "r1": 2.0, "r2": 2.0}
    hashes = scheduling.plan(world(*jobs, links=wide)).topology_hashes
    assert [*hashes.values()].count("now") == migration.EFFORT_MAX // ranks.JOB


def test_profile_of_other_devices_causes_no_migration() -> None:
    """Recorded, a step is far longer than derived, and on other devices only the latter is known.
    The uplinks that got narrow are not narrow enough for a move to pay."""
    recorded = profiles.profile(WORKLOAD)
    large = tuple(
        replace(kind, seen=tuple(replace(each, size=8 * each.size) for each in kind.seen))
        for kind in recorded.kinds
    )
    recorded = replace(recorded, devices=("ours",), kinds=large)
    job_seen = running()
    workload = replace(WORKLOAD, profile=recorded)
    job_seen = replace(job_seen, job=with_role(job_seen.job, workload=workload))
    nodes = tuple(
        replace(each, device="other" if each.name.startswith("r2") else "ours")
        for each in racks(*HERE)
    )
    for capacity, message in (
        (0.1, "the uplinks of r1 have the bandwidth of 0.1 nodes"),
        (0.9, ""),
    ):
        seen_now = world(job_seen, nodes=nodes, links=NARROW | {"r1": capacity})
        assert moved(seen_now).startswith(message)
        assert bool(moved(seen_now)) is bool(message)


def test_the_job_that_gains_the_most_moves_first() -> None:
    jobs = spread(2)
    longer = replace(jobs[1], progress=Progress(1000, total_steps=2_000_000))
    nodes = racks(*(name for each in jobs for name in each.record.nodes), count=5)
    narrow = {f"r{rack}": 0.1 if rack in (1, 3) else 2.0 for rack in range(5)}
    for seen_now, moves in ((jobs, "j0"), ([jobs[0], longer], "j1"), ([jobs[0]], "j0")):
        (entry,) = scheduling.plan(world(*seen_now, links=narrow, nodes=nodes)).ledger.entries
        assert entry.job_uid == moves


def test_migration_choice_is_independent_of_order() -> None:
    jobs = spread(2)
    nodes = racks(*(name for each in jobs for name in each.record.nodes), count=5)
    narrow = {f"r{rack}": 0.1 if rack in (1, 3) else 2.0 for rack in range(5)}
    one = world(*jobs, links=narrow, nodes=nodes)
    links = (Links(leaving=dict(reversed(narrow.items()))),)
    other = replace(one, jobs=one.jobs[::-1], nodes=one.nodes[::-1], links=links)
    assert scheduling.plan(one) == scheduling.plan(other)


def test_migration_cause_fits_the_ledger_with_long_names() -> None:
    long = {f"r{rack}": f"r{rack}" + "x" * 5000 for rack in range(3)}
    nodes = tuple(replace(each, domains=(long[each.name[:2]],)) for each in racks(*HERE))
    links = {long[rack]: capacity for rack, capacity in NARROW.items()}
    message = moved(world(running(), links=links, nodes=nodes))
    assert len(message) == MESSAGE_LENGTH_MAX
