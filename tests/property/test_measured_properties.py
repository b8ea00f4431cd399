"""Measured communicators send what was seen, also of a job with more replicas."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from fixtures import seen
from railwright_scheduler.communication import derive, graph, measured
from railwright_scheduler.communication.graph import Collective, Communicator
from railwright_scheduler.model.workload import (
    Attention,
    Framework,
    Parallelism,
    Precision,
    Recipe,
    Sharding,
    Transformer,
    Workload,
)

MIXTURE = Transformer(16, 256, 16, 16, 16, 512, 1_000, gated=True, experts=8, chosen=2)
GPT = Transformer(16, 256, 16, 16, 16, 1024, 1_000, biased=True)

SHARED = st.sampled_from([1, 2, 4])


@st.composite
def workloads(draw: st.DrawFn, *, mixtures: bool) -> Workload:
    """Of any split, with two replicas or more where shards have any."""
    replicas = draw(st.sampled_from([1, 2]))
    split = Parallelism(
        tensor=draw(SHARED),
        context=draw(SHARED),
        pipeline=draw(SHARED),
        data=replicas * draw(st.sampled_from([2, 3])),
        replicas=replicas,
    )
    if split.pipeline > 1:
        split = replace(split, virtual=draw(st.sampled_from([1, 2])))
    experts = draw(st.sampled_from([0, 2])) if mixtures else 0
    if experts:
        split = replace(split, expert=experts)
    recipe = Recipe(
        sequence=64,
        micro_batch=1,
        global_batch=2 * split.data,
        precision=draw(st.sampled_from([Precision.HALF, Precision.SINGLE])),
        sequence_parallel=bool(experts) or draw(st.booleans()),
        sharding=draw(st.sampled_from(Sharding)),
        attention=draw(st.sampled_from(Attention)),
        framework=draw(st.sampled_from(Framework)),
    )
    if experts:
        assume(_spread_evenly(split, recipe))
    return Workload(MIXTURE if experts else GPT, split, recipe)


def _spread_evenly(split: Parallelism, recipe: Recipe) -> bool:
    """Whether each expert has as many replicas."""
    kept = split.tensor if recipe.framework is Framework.DEEPSPEED else 1
    return split.stage % (kept * split.expert * split.replicas) == 0


def sent(communicators: tuple[Communicator, ...]) -> dict[bytes, dict[Collective, int]]:
    """By groups: of two communicators of the same ranks nobody can tell whose a call was."""
    found: dict[bytes, dict[Collective, int]] = {}
    for each in communicators:
        its = found.setdefault(each.grid.groups(*each.axes).tobytes(), {})
        for traffic in each.traffic:
            size = traffic.sent(each.ranks)
            its[traffic.collective] = its.get(traffic.collective, 0) + size
    return found


@given(workloads(mixtures=True))
def test_profile_of_whole_job_equals_derived_traffic(workload: Workload) -> None:
    measured_workload = replace(workload, profile=seen.profile(workload))
    derived = derive.communicators(*workload.parts)
    demand_as_much(measured.communicators(measured_workload), derived)
    assert {each.name for each in measured.communicators(measured_workload)} <= {
        each.name for each in derived
    }


@given(workloads(mixtures=False), st.sampled_from([2, 8]))
def test_a_job_of_more_replicas_sends_what_is_derived_of_it(workload: Workload, times: int) -> None:
    split, recipe = workload.split, workload.recipe
    job = replace(
        workload,
        split=replace(split, data=times * split.data),
        recipe=replace(recipe, global_batch=times * recipe.global_batch),
        profile=seen.profile(workload),
    )
    demand_as_much(measured.communicators(job), derive.communicators(*job.parts))


@given(workloads(mixtures=True))
def test_opaque_workload_sends_what_was_seen(workload: Workload) -> None:
    """Its recorded groups exchange as much as the described workload's, rank by rank."""
    seen_then = replace(workload, profile=seen.profile(workload))
    described = graph.pairs(measured.communicators(seen_then))
    found = graph.pairs(measured.communicators(replace(seen_then, model=None)))
    assert found.keys() == described.keys()
    for pair, size in described.items():
        assert abs(found[pair] - size) <= 1e-2 * size


def demand_as_much(found: tuple[Communicator, ...], derived: tuple[Communicator, ...]) -> None:
    """Of each collective, but for bytes that calls of one size cannot be shared evenly over."""
    ours, theirs = sent(found), sent(derived)
    assert ours.keys() == theirs.keys()
    for name, its in theirs.items():
        assert ours[name].keys() == its.keys()
        for collective, size in its.items():
            assert abs(ours[name][collective] - size) <= 1e-3 * size
