"""An exception anywhere in the handling of one job changes nothing for any other."""

from __future__ import annotations

import functools
import inspect
import itertools
import sys
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from fixtures import GPU, node
from fixtures.attempts import FAILED, LOST, entry, rank, seen, world_of
from fixtures.jobs import job
from railwright_scheduler import plan as scheduling
from railwright_scheduler.attempt.gang import Pod
from railwright_scheduler.attempt.ledger import Entry
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.attempt.resume_points import ResumePoint
from railwright_scheduler.cluster_state import ClusterState, ObservedAttempt, ObservedJob, Progress
from railwright_scheduler.isolation import Isolation, Stage
from railwright_scheduler.model.reasons import InternalError
from railwright_scheduler.model.snapshot import Job, TierLimit, TopologyConstraints
from railwright_scheduler.model.workload import Parallelism, Recipe, Transformer, Workload
from railwright_scheduler.plan import Plan
from railwright_scheduler.policy.decide import decide
from railwright_scheduler.policy.queue_window import QueueWindow
from railwright_topology.links import Links

RACKS = {"b0": ("r0", "r1"), "b1": ("r2", "r3")}
NAMES = tuple(f"{rack}{at}" for racks in RACKS.values() for rack in racks for at in "abc")
MODEL = Transformer(
    layers=8,
    hidden=1024,
    heads=8,
    kv_heads=8,
    head_size=128,
    feed_forward=4096,
    vocabulary=32_000,
)
TERMS = (
    TopologyConstraints(),
    TopologyConstraints(required="rack"),
    TopologyConstraints(preferred="nearest", spreads=(TierLimit("nearest", 1),)),
    TopologyConstraints(segments=(TierLimit("rack", 2),)),
)


class PlantedError(Exception):
    """What a test raises in the handling of one job."""


@st.composite
def asked(draw: DrawFn, name: str) -> Job:
    """A job of two or four nodes, half of them with a workload."""
    nodes = draw(st.sampled_from((2, 4)))
    split = Parallelism(tensor=draw(st.sampled_from((1, 8))), data=8 * nodes)
    split = replace(split, data=8 * nodes // split.tensor)
    trains = draw(st.booleans())
    return job(
        name,
        replicas=nodes,
        ranks_per_pod=8,
        workload=Workload(MODEL, split, Recipe(1024, 1, 64)) if trains else None,
        constraints=draw(st.sampled_from(TERMS)),
        submitted_s=draw(st.integers(0, 3)),
    )


def pods_of(name: str, attempt: int, nodes: tuple[str, ...], states: str) -> tuple[Pod, ...]:
    """The pods of an attempt: ``b`` is bound, ``u`` is not, ``d`` is being deleted, ``e`` ended."""
    return tuple(
        Pod(
            name=f"{name}-{attempt}-{at}",
            uid=f"{name}{attempt}{at}",
            node_rank=at,
            node="" if state == "u" else where,
            terminal=state == "e",
            deleting=state == "d",
            amounts={GPU: 8},
        )
        for at, (where, state) in enumerate(zip(nodes, states, strict=False))
    )


@st.composite
def job_anywhere(
    draw: DrawFn, name: str, free: list[str]
) -> tuple[ObservedJob, list[Entry], dict[tuple[str, int], ObservedAttempt]]:
    """A job that waits, commits, runs, or is being cleared away, on nodes of its own."""
    asks = draw(asked(name))
    plain = replace(seen(name=name), job=asks)
    state = draw(st.sampled_from(("pending", "committing", "running", "ended", "aborting")))
    if state == "pending" or len(free) < asks.num_pods:
        return plain, [], {}
    nodes = tuple(free.pop() for _ in range(asks.num_pods))
    states = "".join(draw(st.lists(st.sampled_from("bude"), min_size=2, max_size=len(nodes))))
    attempts = {(name, 1): ObservedAttempt(pods_of(name, 1, nodes, states), placed=True)}
    if state == "ended":
        record = JobRecord(phase=Phase.RECOVERING, attempt=1, ended=1, restarts=1)
        return replace(plain, record=record), [], attempts
    if state in ("committing", "aborting"):
        cause = draw(st.sampled_from((FAILED, LOST))) if state == "aborting" else None
        one = replace(entry(cause=cause, nodes=nodes), job_uid=name, job_name=name)
        return plain, [one], attempts
    record = JobRecord(
        phase=Phase.RUNNING,
        attempt=1,
        nodes=nodes,
        checkpoints=(ResumePoint("worker", 1, 10),),
    )
    ranks = tuple(
        rank(at, node=where, silent_s=draw(st.sampled_from((1.0, 99.0))), node_gone=True)
        for at, where in enumerate(nodes)
    )
    runs = replace(
        plain,
        record=record,
        ranks=ranks,
        started=True,
        bound_age_s=1e6,
        topology_hash="before",
        progress=Progress(10, 100_000),
    )
    return runs, [], {(name, 1): ObservedAttempt(pods_of(name, 1, nodes, "b" * len(nodes)))}


@st.composite
def worlds(draw: DrawFn) -> ClusterState:
    """Up to four jobs in any part of their lives, on twelve nodes with a narrow rack."""
    free = list(draw(st.permutations(NAMES)))
    jobs: list[ObservedJob] = []
    entries: list[Entry] = []
    attempts: dict[tuple[str, int], ObservedAttempt] = {}
    for name in "abcd"[: draw(st.integers(2, 4))]:
        found, its_entries, its_attempts = draw(job_anywhere(name, free))
        jobs.append(found)
        entries += its_entries
        attempts |= its_attempts
    where = {rack: block for block, racks in RACKS.items() for rack in racks}
    taken = {name for each in jobs for name in each.record.nodes}
    nodes = tuple(
        node(
            name,
            where[name[:2]],
            name[:2],
            machine="DGX A100",
            used={GPU: 8} if name in taken else {},
        )
        for name in NAMES
    )
    world = world_of(
        *jobs, nodes=nodes, levels=("block", "rack"), attempts=attempts, entries=tuple(entries)
    )
    links = (Links(2.0), Links(leaving={"r0": 2.0, "r1": 0.1, "r2": 2.0, "r3": 2.0}))
    return replace(world, links=links, topology_hash="now", topology_age_s=60.0)


def forget_answers() -> None:
    """Clear the core's caches: what is cached makes no calls that could raise."""
    for name, module in sorted(sys.modules.items()):
        if name.startswith("railwright_scheduler"):
            for function in vars(module).values():
                if hasattr(function, "cache_clear"):
                    function.cache_clear()


def plant(world: ClusterState, uid: str, at: int) -> tuple[Plan, Stage | None]:
    """Plan with an exception raised at the ``at``-th call of a function in this job's handling;
    the stage that it was raised in, None if the handling has fewer calls."""
    forget_answers()
    isolation = Isolation()
    calls = 0

    def trace(frame: FrameType, kind: str, _: Any) -> None:
        nonlocal calls
        if kind == "call" and isolation.current is not None and isolation.current[1] == uid:
            if "railwright" not in frame.f_code.co_filename:
                return
            # Python also enters a generator to close it, and drops what that raises.
            if frame.f_code.co_flags & inspect.CO_GENERATOR:
                return
            if frame.f_code.co_filename == Isolation.run.__code__.co_filename:
                return
            calls += 1
            if calls == at:
                raise PlantedError(f"call {at}")

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        taken = scheduling.plan(world, isolation)
    finally:
        sys.settrace(before)
    planted = [fault for fault in taken.faults if isinstance(fault.exception, PlantedError)]
    return taken, planted[0].stage if planted else None


def others(taken: Plan, uid: str) -> dict[str, object]:
    """All of a plan that is about other jobs."""
    return {
        "entries": [each for each in taken.ledger.entries if each.job_uid != uid],
        "actions": [each for each in taken.actions if each.entry.job_uid != uid],
        "records": {key: value for key, value in taken.records.items() if key != uid},
        "waits": {key: value for key, value in taken.waits.items() if key != uid},
        "assessments": {key: value for key, value in taken.assessments.items() if key != uid},
        "reservations": {key: value for key, value in taken.reservations.items() if key != uid},
    }


@given(worlds(), st.data())
def test_exception_in_one_job_changes_no_other(world: ClusterState, data: st.DataObject) -> None:
    """Byte for byte, the others' outcome is that of a plan in which the stage was left out."""
    uid = data.draw(st.sampled_from([each.job.uid for each in world.jobs]))
    at = data.draw(st.integers(1, 60) | st.integers(1, 2_000))
    taken, stage = plant(world, uid, at)
    assume(stage is not None)
    assert stage is not None
    event(f"stage {stage}")
    left_out = scheduling.plan(world, Isolation({(stage, uid): f"PlantedError: call {at}"}))
    assert repr(others(taken, uid)) == repr(others(left_out, uid))
    assert [each for each in taken.faults if each.job_uid != uid] == []
    held = {each.key for each in world.ledger.entries if each.job_uid == uid}
    if stage is Stage.COMMIT:
        assert held <= {each.key for each in taken.ledger.entries}


@given(worlds(), st.data())
def test_job_whose_decision_raises_affects_no_other(
    world: ClusterState, data: st.DataObject
) -> None:
    idle = [
        each.job.uid
        for each in world.jobs
        if not each.record.attempt and not any(k[0] == each.job.uid for k in world.attempts)
    ]
    assume(idle)
    uid = data.draw(st.sampled_from(idle))
    taken = scheduling.plan(world, Isolation({(Stage.DECISION, uid): "ValueError: no"}))
    without = replace(world, jobs=tuple(each for each in world.jobs if each.job.uid != uid))
    assert repr(others(taken, uid)) == repr(others(scheduling.plan(without), uid))
    assert taken.waits[uid] == InternalError("ValueError: no")


def test_exception_where_a_reservation_is_kept_changes_no_other() -> None:
    """Jobs that a cycle does not evaluate keep theirs, in a stage of their own."""
    jobs = [replace(seen(name=name), job=job(name, replicas=2)) for name in "abcd"]
    nodes = tuple(node(name, "b0", name[:2], used={GPU: 8}) for name in NAMES)
    world = world_of(*jobs, nodes=nodes, levels=("block", "rack"))
    before = scheduling.plan(world)
    world = replace(world, reservations=before.reservations, waits=before.waits)
    planted = 0
    with pytest.MonkeyPatch.context() as patched:
        window = functools.partial(QueueWindow, limit=1)
        patched.setitem(decide.__globals__, "QueueWindow", window)
        for uid, at in itertools.product("cd", range(1, 30)):
            taken, stage = plant(world, uid, at)
            if stage is Stage.RESERVATION:
                planted += 1
                left_out = scheduling.plan(
                    world, Isolation({(stage, uid): f"PlantedError: call {at}"})
                )
                assert repr(others(taken, uid)) == repr(others(left_out, uid))
                assert taken.waits[uid] == before.waits[uid]
    assert planted >= 2
