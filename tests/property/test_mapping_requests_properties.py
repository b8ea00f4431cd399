"""A mapping that is requested first and used later changes nothing but the time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from fixtures import GPU
from fixtures.jobs import job, node
from property.test_ranks_properties import workloads, worlds
from railwright_scheduler.mapping.gang_mapping import map_ranks
from railwright_scheduler.model.decisions import Admit, Decisions
from railwright_scheduler.model.reasons import MappingPending
from railwright_scheduler.model.snapshot import Snapshot
from railwright_scheduler.policy.decide import decide
from railwright_scheduler.policy.mappings import WAIT_S, Mappings, RequestedMapping, Unmapped
from railwright_topology.links import Links

UNDONE = (None, None, Unmapped.FAILED, Unmapped.OVER_BUDGET)


def with_outcome(requested: RequestedMapping, age_s: float) -> RequestedMapping:
    found = map_ranks(requested.request)
    return replace(requested, age_s=age_s, outcome=found or Unmapped.OVER_BUDGET)


@given(worlds())
def test_a_gang_gets_the_same_in_two_cycles_as_in_one(snapshot: Snapshot) -> None:
    at_once = decide(snapshot)
    mappings = Mappings({})
    first = decide(snapshot, mappings=mappings)
    if not mappings.requested:
        assert repr(first) == repr(at_once)
        return
    requested = {uid: with_outcome(each, 0.5) for uid, each in mappings.requested.items()}
    assert repr(decide(snapshot, mappings=Mappings(requested))) == repr(at_once)


@st.composite
def queues(draw: st.DrawFn) -> Snapshot:
    """Jobs with and without a workload that do not all fit."""
    made = []
    for number in range(draw(st.integers(1, 6))):
        priority, name = draw(st.integers(0, 2)), f"j{number}"
        if draw(st.booleans()):
            workload = draw(workloads())
            ranks = workload.split.ranks
            sizes = [size for size in (1, 2, 4, 8) if ranks % size == 0]
            each = draw(st.sampled_from(sizes))
            its = {"replicas": ranks // each, "ranks_per_pod": each, "workload": workload}
            made.append(job(name, priority=priority, per_pod={GPU: each}, **its))
        else:
            made.append(job(name, priority=priority, replicas=draw(st.integers(1, 6))))
    nodes = tuple(
        node(f"n{at}", f"b{at // 8}", f"r{at // 4}", machine="DGX A100")
        for at in range(draw(st.integers(4, 24)))
    )
    links = (Links(8.0), Links(2.0))
    return Snapshot(("block", "rack"), nodes, ("default",), tuple(made), links=links)


@given(queues(), st.data())
def test_every_gang_that_waits_for_its_mapping_starts_in_time(
    snapshot: Snapshot, data: st.DataObject
) -> None:
    """Whatever comes of the requests, and whoever ends or comes meanwhile: no node is given twice,
    and no job waits longer than the time for it."""
    requested: dict[str, RequestedMapping] = {}
    since: dict[str, float] = {}
    for _ in range(12):
        mappings = Mappings(requested)
        decided = decide(snapshot, mappings=mappings)
        _check(snapshot, decided.admitted)
        pending = {w.job_uid for w in decided.waiting if isinstance(w.reason, MappingPending)}
        assert pending <= mappings.requested.keys()
        assert not any(since.get(uid, 0.0) >= WAIT_S for uid in pending)
        snapshot = _after(snapshot, decided, data)
        since = {uid: since.get(uid, -0.5) + 0.5 for uid in mappings.requested}
        requested = {
            uid: with_outcome(each, since[uid])
            if data.draw(st.booleans())
            else replace(each, age_s=since[uid], outcome=data.draw(st.sampled_from(UNDONE)))
            for uid, each in mappings.requested.items()
        }


def _check(snapshot: Snapshot, admitted: Sequence[Admit]) -> None:
    left = {each.name: each.allocatable[GPU] - each.used.get(GPU, 0) for each in snapshot.nodes}
    jobs = {each.uid: each for each in snapshot.jobs}
    for admit in admitted:
        (role,) = jobs[admit.job_uid].roles
        assert len({*admit.nodes}) == role.replicas
        for name in admit.nodes:
            left[name] -= role.per_pod[GPU]
            assert left[name] >= 0


def _after(snapshot: Snapshot, decided: Decisions, data: st.DataObject) -> Snapshot:
    """The next cycle's snapshot: what started runs, and now and then a node's pods end."""
    jobs = {each.uid: each for each in snapshot.jobs}
    used = {each.name: each.used.get(GPU, 0) for each in snapshot.nodes}
    for admit in decided.admitted:
        for name in admit.nodes:
            used[name] += jobs[admit.job_uid].roles[0].per_pod[GPU]
    freed = data.draw(st.sets(st.sampled_from(sorted(used)), max_size=2))
    started = {admit.job_uid for admit in decided.admitted}
    return replace(
        snapshot,
        nodes=tuple(
            replace(each, used={GPU: 0 if each.name in freed else used[each.name]})
            for each in snapshot.nodes
        ),
        jobs=tuple(each for each in snapshot.jobs if each.uid not in started),
        reserved=decided.reservations,
    )
