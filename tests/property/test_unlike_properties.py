"""Whatever machines a gang is of and whichever of its nodes are slow: slower ones make no step
shorter, who is even is predicted as before, and few nodes are laid out as well as can be."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures import job, node
from fixtures.examples import examples
from railwright_scheduler.communication import derive
from railwright_scheduler.cost import step
from railwright_scheduler.cost.hardware import DGX_A100, DGX_H100, HGX_H800, MACHINES, Machine
from railwright_scheduler.cost.heterogeneous import GangModel
from railwright_scheduler.model.decisions import Admit
from railwright_scheduler.model.placement_score import PredictedStep
from railwright_scheduler.model.snapshot import Node, Snapshot
from railwright_scheduler.model.workload import (
    Framework,
    Parallelism,
    Recipe,
    Sharding,
    Transformer,
    Workload,
)
from railwright_scheduler.policy.decide import decide
from railwright_topology.links import Links
from railwright_topology.relative_speed import RelativeSpeed

PLAIN = Transformer(7, 1024, 16, 16, 64, 4096, 32_000)
MIXTURE = replace(PLAIN, experts=16, chosen=2, gated=True, feed_forward=512)

relative_speeds = st.builds(
    RelativeSpeed,
    *[st.sampled_from([1.0, 0.95, 0.9, 0.7, 0.5, 0.1])] * 2,
    st.sampled_from([1.0, 0.875, 0.5]),
)
kinds = st.sampled_from(list(MACHINES.values()))


@st.composite
def workloads(draw: st.DrawFn, nodes_max: int = 6) -> Workload:
    """On whole nodes of eight devices. Experts have nothing go on beside what they send: where the
    host decides, what slow devices hide more of is not made up for by how long they take."""
    tensor = draw(st.sampled_from([4, 8]))
    pipeline = draw(st.sampled_from([1, 2, 3]))
    nodes = draw(st.integers(1, nodes_max // pipeline)) * pipeline
    data = nodes * 8 // (tensor * pipeline)
    virtual = draw(st.sampled_from([1, 2])) if pipeline > 1 else 1
    split = Parallelism(tensor=tensor, pipeline=pipeline, virtual=virtual, data=data)
    model = draw(st.sampled_from([PLAIN, MIXTURE]))
    overlapped = draw(st.booleans()) and not model.experts
    recipe = Recipe(
        2048,
        1,
        data * draw(st.sampled_from([1, 8])),
        sequence_parallel=overlapped,
        overlap=overlapped,
        overlap_tensor=overlapped,
        sharding=draw(st.sampled_from([Sharding.NONE, Sharding.OPTIMIZER])),
        framework=draw(st.sampled_from([*Framework])),
    )
    if model.experts:
        share = 1 if recipe.framework is Framework.DEEPSPEED else tensor
        split = replace(split, expert=2 if data * share % 2 == 0 else 1)
    return Workload(model, split, recipe)


def nodes_of(workload: Workload) -> int:
    return workload.split.ranks // 8


def took_s(workload: Workload, machines: list[Machine]) -> float:
    """With a machine for each node rank."""
    found = GangModel(workload, machines, derive.communicators(*workload.parts))
    return found.predicted(np.arange(len(machines)), {}, ()).total


@settings(deadline=None, max_examples=examples(40))
@given(st.data(), workloads())
def test_a_slower_node_makes_no_step_shorter(data: st.DataObject, workload: Workload) -> None:
    count = nodes_of(workload)
    its = data.draw(st.lists(st.tuples(kinds, relative_speeds), min_size=count, max_size=count))
    machines = [kind.at_speed(relative_speed) for kind, relative_speed in its]
    before_s = took_s(workload, machines)
    at = data.draw(st.integers(0, count - 1))
    kind, relative_speed = its[at]
    more = data.draw(relative_speeds)
    slower = RelativeSpeed(
        min(relative_speed.products, more.products),
        min(relative_speed.memory, more.memory),
        min(relative_speed.rails, more.rails),
    )
    machines[at] = kind.at_speed(slower)
    assert took_s(workload, machines) >= before_s * (1 - 1e-9)
    if kind is DGX_H100:
        for other in (HGX_H800, DGX_A100):
            machines[at] = other.at_speed(slower)
            assert took_s(workload, machines) >= before_s * (1 - 1e-9)


@settings(deadline=None, max_examples=examples(25))
@given(workloads(), kinds, relative_speeds)
def test_an_even_gang_is_predicted_as_one_machine_is(
    workload: Workload, kind: Machine, relative_speed: RelativeSpeed
) -> None:
    machine = kind.at_speed(relative_speed)
    alone_s = step.predict(*workload.parts, machine).total
    assert abs(took_s(workload, [machine] * nodes_of(workload)) - alone_s) <= 1e-9 * alone_s


def racked(workload: Workload, its: list[tuple[str, RelativeSpeed]], *names: str) -> Admit:
    """The job on nodes of one rack, which are such machines."""
    nodes = tuple(
        node(name, "r0", machine=machine, relative_speed=relative_speed)
        for name, (machine, relative_speed) in zip(
            names or map("n{}".format, range(9)), its, strict=False
        )
    )
    return admitted(workload, nodes)


def admitted(workload: Workload, nodes: tuple[Node, ...], *, times: float = 4.0) -> Admit:
    asked = job("a", replicas=nodes_of(workload), ranks_per_pod=8, workload=workload)
    world = Snapshot(("rack",), nodes, ("default",), (asked,), links=(Links(times),))
    (found,) = decide(world).admitted
    return found


def predicted(found: Admit) -> PredictedStep:
    assert found.score is not None
    assert found.score.predicted is not None
    return found.score.predicted


stands = st.tuples(st.sampled_from(["DGX A100", "DGX H100"]), st.sampled_from([1.0, 0.7])).map(
    lambda its: (its[0], RelativeSpeed(products=its[1]))
)


@settings(deadline=None, max_examples=examples(10))
@given(st.data(), workloads())
def test_few_nodes_are_laid_out_as_well_as_can_be(data: st.DataObject, workload: Workload) -> None:
    """Three kinds at most, in every order."""
    count = nodes_of(workload)
    three = data.draw(st.lists(stands, min_size=1, max_size=3, unique=True))
    its = data.draw(st.lists(st.sampled_from(three), min_size=count, max_size=count))
    reported = predicted(racked(workload, its))
    machines = [MACHINES[name].at_speed(relative_speed) for name, relative_speed in its]
    gang = GangModel(workload, machines, derive.communicators(*workload.parts))
    seen: dict[tuple[tuple[str, RelativeSpeed], ...], float] = {}
    for order in itertools.permutations(range(count)):
        key = tuple(its[at] for at in order)
        if key not in seen:
            seen[key] = gang.predicted(np.array(order), {}, ()).total
    assert abs(reported.placed_us - 1e6 * min(seen.values())) <= 1.0
    assert 0 <= reported.slow_us < reported.placed_us


@settings(deadline=None, max_examples=examples(8))
@given(st.data(), workloads())
def test_other_names_for_nodes_take_as_long(data: st.DataObject, workload: Workload) -> None:
    count = nodes_of(workload)
    three = data.draw(st.lists(stands, min_size=1, max_size=3, unique=True))
    its = data.draw(st.lists(st.sampled_from(three), min_size=count, max_size=count))
    names = [f"m{at}" for at in range(count)]
    renamed = data.draw(st.permutations(names))
    one, other = (predicted(racked(workload, its, *each)) for each in (names, renamed))
    assert one.placed_us == other.placed_us
    if len({machine for machine, _ in its}) == 1:
        # Of several kinds orders that take as long now may differ if none were slow.
        assert one.slow_us == other.slow_us


@settings(deadline=None, max_examples=examples(10))
@given(st.data(), workloads(nodes_max=4))
def test_a_free_node_more_that_is_fast_makes_no_step_longer(
    data: st.DataObject, workload: Workload
) -> None:
    count = nodes_of(workload)
    slow = data.draw(st.lists(relative_speeds, min_size=count, max_size=count + 2))
    its = [("DGX H100", relative_speed) for relative_speed in slow]
    before = predicted(racked(workload, its))
    after = predicted(racked(workload, [*its, ("DGX H100", RelativeSpeed())]))
    assert after.placed_us <= before.placed_us + 1


@settings(deadline=None, max_examples=examples(10))
@given(st.data(), workloads(nodes_max=4))
def test_nor_does_one_in_any_rack_by_more_than_two_percent(
    data: st.DataObject, workload: Workload
) -> None:
    """By a percent a step may be longer to span fewer racks, before and after."""
    count = nodes_of(workload)
    racks = st.sampled_from(["r0", "r1", "r2"])
    its = data.draw(st.lists(st.tuples(racks, relative_speeds), min_size=count, max_size=count + 6))
    nodes = [
        node(f"n{at}", rack, machine="DGX H100", relative_speed=relative_speed)
        for at, (rack, relative_speed) in enumerate(its)
    ]
    more = node("more", data.draw(racks), machine="DGX H100")
    before, after = (
        predicted(admitted(workload, tuple(each), times=1.0)) for each in (nodes, [*nodes, more])
    )
    assert 0.98 * after.placed_us <= before.placed_us + 1
