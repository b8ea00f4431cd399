"""Whatever others send: more of it never makes a step shorter, none of it changes nothing, and it
does not matter who of them comes first."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures import job, node
from fixtures.examples import examples
from railwright_scheduler import cluster
from railwright_scheduler.cost import contention
from railwright_scheduler.cost.contention import UplinkUse
from railwright_scheduler.mapping.evaluation import OrderEvaluator
from railwright_scheduler.mapping.request import Uses, build_request
from railwright_scheduler.model.snapshot import Job, SendingJob, Snapshot
from railwright_scheduler.model.workload import (
    Framework,
    Parallelism,
    Recipe,
    Transformer,
    Workload,
)
from railwright_scheduler.policy.decide import decide
from railwright_topology.links import Links

PLAIN = Transformer(8, 1024, 16, 16, 64, 4096, 32_000)
LEVELS = ("block", "rack")

amounts = st.floats(2**-10, 64.0)
uses = st.builds(
    lambda adapters, part: UplinkUse(part * adapters, adapters), amounts, st.floats(2**-10, 1.0)
)


@given(amounts, amounts, st.lists(uses, max_size=5), st.randoms(use_true_random=False))
def test_no_order_of_others_matters(
    capacity: float, adapters: float, others: list[UplinkUse], rng: Random
) -> None:
    shuffled = rng.sample(others, len(others))
    assert contention.left(capacity, adapters, shuffled) == contention.left(
        capacity, adapters, others
    )


@given(amounts, amounts, st.lists(uses, max_size=5))
def test_job_gets_its_fair_share_within_capacity(
    capacity: float, adapters: float, others: list[UplinkUse]
) -> None:
    found = contention.left(capacity, adapters, others)
    fair_share = capacity * adapters / (adapters + sum(each.adapters for each in others))
    assert fair_share * (1 - 1e-9) <= found <= capacity
    unused = capacity - sum(each.busy for each in others)
    assert found >= unused * (1 - 1e-9) - 1e-9


@given(amounts, amounts, st.lists(uses, max_size=5))
def test_fair_share_equals_progressive_filling(
    capacity: float, adapters: float, others: list[UplinkUse]
) -> None:
    """Of each adapter the same, until who wants no more drops out or the room is used up."""
    low, high = 0.0, capacity / adapters
    for _ in range(100):
        share = (low + high) / 2
        taken = sum(min(each.busy, share * each.adapters) for each in others)
        low, high = (share, high) if taken + share * adapters < capacity else (low, share)
    assert abs(contention.left(capacity, adapters, others) - low * adapters) <= 1e-6 * capacity


@given(amounts, amounts, st.lists(uses, min_size=1, max_size=5), st.floats(1.0, 16.0))
def test_the_more_others_send_the_less_is_left(
    capacity: float, adapters: float, others: list[UplinkUse], times: float
) -> None:
    first, *rest = others
    more = replace(first, busy=min(first.adapters, first.busy * times))
    now = contention.left(capacity, adapters, others)
    assert contention.left(capacity, adapters, [more, *rest]) <= now * (1 + 1e-9)
    assert now <= contention.left(capacity, adapters, rest) * (1 + 1e-9)


@st.composite
def gangs(draw: st.DrawFn, name: str = "a") -> Job:
    split = Parallelism(
        tensor=draw(st.sampled_from([2, 4])),
        pipeline=draw(st.sampled_from([1, 2, 4])),
        data=draw(st.sampled_from([2, 4])),
    )
    framework = draw(st.sampled_from([Framework.MEGATRON, Framework.MEGATRON_PIPELINE_FIRST]))
    recipe = Recipe(1024, 1, 4 * split.data, framework=framework)
    workload = Workload(PLAIN, split, recipe)
    return job(name, replicas=split.ranks // 4, ranks_per_pod=4, workload=workload)


@st.composite
def worlds(draw: st.DrawFn) -> Snapshot:
    """One gang, and others that run on nodes that it shares with them."""
    asked = draw(gangs())
    nodes = [
        node(f"n{at:02d}", draw(st.sampled_from("ab")), draw(st.sampled_from("xy")), machine=kind)
        for at, kind in enumerate(["DGX A100"] * draw(st.integers(asked.num_pods, 20)))
    ]
    running = []
    for its in draw(st.lists(gangs(), max_size=3)):
        names = draw(st.permutations([each.name for each in nodes]))[: its.num_pods]
        if its.num_pods == len(names) > 1 and its.roles[0].workload:
            running.append(SendingJob(its.roles[0].workload, 4, tuple(names)))
    times = draw(st.sampled_from([(1.0, 1.0), (4.0, 1.0), (8.0, 4.0)]))
    return Snapshot(
        LEVELS,
        tuple(nodes),
        ("default",),
        (asked,),
        tuple(map(Links, times)),
        senders=tuple(running),
    )


@settings(deadline=None, max_examples=examples(20))
@given(worlds(), st.randoms(use_true_random=False))
def test_no_order_of_other_jobs_reaches_the_decision(world: Snapshot, rng: Random) -> None:
    shuffled = tuple(rng.sample(world.senders, len(world.senders)))
    assert decide(replace(world, senders=shuffled)) == decide(world)


@settings(deadline=None, max_examples=examples(20))
@given(worlds())
def test_reported_traffic_of_others_is_part_of_the_step(world: Snapshot) -> None:
    """And with nobody beside, or where all may leave, there is nothing to tell."""
    (found,) = decide(world).admitted
    assert found.score is not None
    assert found.score.predicted is not None
    reported = found.score.predicted
    assert 0 <= reported.others_us < reported.placed_us
    if not world.senders or all(each.oversubscription == 1.0 for each in world.links):
        assert reported.others_us == 0
        assert decide(replace(world, senders=())).admitted == (found,)


@settings(deadline=None, max_examples=examples(40))
@given(worlds(), st.lists(uses, min_size=4, max_size=4), st.floats(1.0, 8.0))
def test_more_load_on_a_link_never_makes_a_step_shorter(
    world: Snapshot, loads: list[UplinkUse], times: float
) -> None:
    """Of the same nodes in the same order."""
    hall = cluster.of(world)
    (asked,) = world.jobs
    nodes = np.arange(asked.num_pods)
    light: Uses = [{0: loads[:1]}, {0: loads[1:2], 1: loads[2:]}]
    heavy: Uses = [
        {
            domain: [replace(its, busy=min(its.adapters, its.busy * times)) for its in load]
            for domain, load in level.items()
        }
        for level in light
    ]
    steps_us = [
        OrderEvaluator(build_request(asked.roles[0], hall, nodes, budget=0, uses=each))
        .evaluate(nodes)
        .step_us
        for each in ((), light, heavy)
    ]
    assert steps_us == sorted(steps_us)
