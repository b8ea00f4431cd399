"""More bytes never take less time, and faster links or more algorithms never more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.models import MIXTURE
from railwright_scheduler.cost import collectives, step
from railwright_scheduler.cost.collectives import Group
from railwright_scheduler.cost.hardware import (
    DGX_A100,
    DGX_H100,
    HGX_H800,
    INFINIBAND_HDR,
    Algorithm,
    LinkCost,
    Machine,
)
from railwright_scheduler.model.workload import Parallelism, Precision, Recipe, Routing, Transformer

Collective = Callable[[float, Group], float]

sizes = st.integers(0, 1 << 36)
nodes = st.integers(1, 64)
ranks = st.sampled_from([1, 2, 4, 8])
factors = st.floats(1.0, 16.0)
machines = st.sampled_from(
    [
        machine.behind(INFINIBAND_HDR, tiers, sharp=sharp)
        for machine in (DGX_A100, DGX_H100, HGX_H800)
        for tiers, sharp in ((1, False), (3, True))
    ]
)
algorithms = st.lists(st.sampled_from(Algorithm), unique=True).map(tuple)


def faster(machine: Machine, *, in_node: float, network: float) -> Machine:
    """The same with links that are so many times faster."""
    return replace(
        machine,
        intra_node=wider(machine.intra_node, in_node),
        network=wider(machine.network, network),
        all_to_all=machine.all_to_all * in_node,
        nvls=machine.nvls and wider(machine.nvls, in_node),
    )


def wider(link: LinkCost, factor: float) -> LinkCost:
    return replace(link, bandwidth=link.bandwidth * factor)


def dispatch_s(size: float, here: Group) -> float:
    return collectives.dispatch_s(size, Routing(experts=512, chosen=8), here)


@pytest.mark.parametrize(
    "collective",
    [
        collectives.all_reduce_s,
        collectives.reduce_scatter_s,
        collectives.all_to_all_s,
        dispatch_s,
    ],
    ids=lambda each: each.__name__,
)
@given(
    machine=machines,
    has=algorithms,
    size=sizes,
    more=sizes,
    shape=st.tuples(nodes, ranks),
    in_node=factors,
    network=factors,
)
def test_collective_grows_with_bytes_and_shrinks_with_bandwidth(
    collective: Collective,
    machine: Machine,
    has: tuple[Algorithm, ...],
    size: int,
    more: int,
    shape: tuple[int, int],
    in_node: float,
    network: float,
) -> None:
    slow = replace(machine, algorithms=has)
    here = Group(slow, *shape)
    there = Group(faster(slow, in_node=in_node, network=network), *shape)
    assert collective(size, here) <= collective(size + more, here)
    assert collective(size, there) <= collective(size, here)


@pytest.mark.parametrize(
    "collective",
    [collectives.all_reduce_s, collectives.all_to_all_s],
    ids=lambda each: each.__name__,
)
@given(machine=machines, has=algorithms, more=algorithms, size=sizes, shape=st.tuples(nodes, ranks))
def test_collective_takes_no_longer_with_more_algorithms(
    collective: Collective,
    machine: Machine,
    has: tuple[Algorithm, ...],
    more: tuple[Algorithm, ...],
    size: int,
    shape: tuple[int, int],
) -> None:
    here = Group(replace(machine, algorithms=has), *shape)
    there = Group(replace(machine, algorithms=has + more), *shape)
    assert collective(size, there) <= collective(size, here)


@given(
    machine=machines,
    tensor=ranks,
    pipeline=st.sampled_from([1, 2, 4]),
    data=st.sampled_from([1, 2, 8, 64]),
    overlapped=st.booleans(),
    in_node=factors,
    network=factors,
)
def test_a_step_shrinks_with_bandwidth(
    machine: Machine,
    tensor: int,
    pipeline: int,
    data: int,
    overlapped: bool,
    in_node: float,
    network: float,
) -> None:
    model = Transformer(16, 2048, 16, 16, 128, 8192, 51_200)
    recipe = Recipe(
        sequence=1024,
        micro_batch=1,
        global_batch=1024,
        sequence_parallel=overlapped,
        overlap=overlapped,
        overlap_tensor=overlapped,
    )
    split = Parallelism(tensor=tensor, pipeline=pipeline, virtual=1 + overlapped, data=data)
    slow = step.predict(model, split, recipe, machine)
    fast = step.predict(model, split, recipe, faster(machine, in_node=in_node, network=network))
    assert fast.total <= slow.total * (1 + 1e-12)


@given(
    data=st.sampled_from([8, 16, 64]),
    micro_batch=st.sampled_from([1, 4]),
    overlapped=st.booleans(),
    precision=st.sampled_from([Precision.HALF, Precision.FP8]),
    in_node=factors,
    network=factors,
)
def test_a_step_of_experts_shrinks_with_bandwidth(
    data: int,
    micro_batch: int,
    overlapped: bool,
    precision: Precision,
    in_node: float,
    network: float,
) -> None:
    recipe = Recipe(
        sequence=1024,
        micro_batch=micro_batch,
        global_batch=1024,
        precision=precision,
        overlap=overlapped,
        overlap_experts=overlapped,
    )
    split = Parallelism(data=data, expert=data)
    slow = step.predict(MIXTURE, split, recipe, DGX_H100)
    fast = step.predict(MIXTURE, split, recipe, faster(DGX_H100, in_node=in_node, network=network))
    assert fast.total <= slow.total * (1 + 1e-12)
