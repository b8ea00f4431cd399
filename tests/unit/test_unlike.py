"""What a step takes on machines of several kinds, and on some that are slower than most."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from railwright_scheduler.communication import derive
from railwright_scheduler.cost import collectives, heterogeneous, kernels, step, work
from railwright_scheduler.cost.collectives import Group
from railwright_scheduler.cost.hardware import (
    DGX_A100,
    DGX_H100,
    H100,
    HGX_H800,
    INFINIBAND_HDR,
    SLOWEST,
    Algorithm,
    Machine,
)
from railwright_scheduler.cost.heterogeneous import GangModel
from railwright_scheduler.cost.kernels import Product
from railwright_scheduler.model.workload import (
    Framework,
    Parallelism,
    Precision,
    Recipe,
    Transformer,
    Workload,
)
from railwright_topology.relative_speed import EVEN, RelativeSpeed

GPT = Transformer(30, 4096, 32, 32, 128, 4 * 4096, 51_200)
RECIPE = Recipe(2048, 1, 64, framework=Framework.MEGATRON_PIPELINE_FIRST)
FOUR_BY_TWO = Workload(GPT, Parallelism(tensor=8, pipeline=4, data=2), RECIPE)
"""Node ranks 0 and 4 are the first stage's, 3 and 7 the last one's."""

ELSEWHERE = replace(
    DGX_H100, name="other", device=replace(H100, name="other", maker="another", direct=False)
)
"""Of another maker, written for these tests: nobody says that adapters reach its memory."""


def gang(*machines: Machine, workload: Workload = FOUR_BY_TWO) -> GangModel:
    return GangModel(workload, machines, derive.communicators(*workload.parts))


def took_s(found: GangModel, *slow: int, nodes: int = 8) -> float:
    """With these node ranks on the second of its machines."""
    stands = np.isin(np.arange(nodes), slow).astype(np.int64)
    return found.predicted(stands, {}, ()).total


def test_slow_device_computes_and_copies_at_its_speed() -> None:
    """The relative speed scales products and memory traffic."""
    slow = DGX_H100.at_speed(RelativeSpeed(products=0.5, memory=0.25))
    large = Product(16_384, 16_384, 16_384)
    even_s = kernels.product_s(large, H100, Precision.HALF)
    assert kernels.product_s(large, slow.device, Precision.HALF) == pytest.approx(
        2 * even_s, rel=0.2
    )
    size = 1e9
    assert kernels.memory_s(size, slow.device) == pytest.approx(
        4 * kernels.memory_s(size, H100), rel=0.01
    )
    operations = 1e12
    assert kernels.attention_s(operations, slow.device, H100.attention) == pytest.approx(
        2 * kernels.attention_s(operations, H100, H100.attention), rel=0.01
    )
    assert DGX_H100.at_speed(EVEN) is DGX_H100


def test_slow_memory_makes_no_product_faster() -> None:
    slow = DGX_H100.at_speed(RelativeSpeed(memory=0.25)).device
    for k in (512, 6144, 65_536):
        its = Product(1536, 2816, k)
        even_s = kernels.product_s(its, H100, Precision.HALF)
        assert kernels.product_s(its, slow, Precision.HALF) >= even_s


def test_node_with_misaligned_rails_uses_the_others() -> None:
    slow = DGX_H100.at_speed(RelativeSpeed(rails=0.75))
    assert slow.network.bandwidth == pytest.approx(0.75 * DGX_H100.network.bandwidth)
    none = DGX_H100.at_speed(RelativeSpeed(rails=0.0))
    assert none.network.bandwidth == pytest.approx(DGX_H100.network.bandwidth / 8)


def test_what_does_nothing_at_all_still_has_a_finite_step() -> None:
    stopped = DGX_H100.at_speed(RelativeSpeed(products=0.0, memory=0.0))
    assert stopped.device.relative_speed == RelativeSpeed(SLOWEST, SLOWEST, 1.0)


def test_one_maker_sends_at_speed_of_slower_adapter() -> None:
    both = collectives.joined([DGX_A100, DGX_H100])
    assert both.network.bandwidth == 24e9
    assert both.network.step_s == 14e-6
    assert both.intra_node.bandwidth == 232e9
    assert both.all_to_all == 210e9


def test_unreachable_devices_send_through_both_hosts() -> None:
    """Of eight devices each has an eighth of the host's memory, which each byte crosses twice each
    way: 2 x 204.8 GB/s / 32 on the slower host, less than its adapter's 24 and the copy's 24.8.
    Two copies go before and after the message."""
    through = collectives.joined([DGX_A100, ELSEWHERE]).network
    assert through.bandwidth == pytest.approx(12.8e9)
    assert through.step_s == pytest.approx(14e-6 + 2 * 0.9e-6)
    size = 1e9
    assert collectives.send_s(size, through) == pytest.approx(15.8e-6 + 1 / 12.8)


def test_a_bounce_is_as_slow_as_its_slowest_part() -> None:
    roomy, plenty = (
        replace(each, host=replace(each.host, memory=1e15)) for each in (DGX_A100, ELSEWHERE)
    )
    assert collectives.joined([roomy, plenty]).network.bandwidth == 24e9
    narrow = replace(plenty.host, copy=5e9)
    assert collectives.joined([roomy, replace(ELSEWHERE, host=narrow)]).network.bandwidth == 5e9


def test_makers_with_direct_adapters_send_directly() -> None:
    reached = replace(ELSEWHERE, device=replace(ELSEWHERE.device, direct=True))
    assert collectives.joined([DGX_H100, reached]).network == DGX_H100.network
    assert (
        collectives.joined([ELSEWHERE, replace(ELSEWHERE, name="next")]).network == DGX_H100.network
    )


def test_heterogeneous_kinds_have_no_in_network_reduction() -> None:
    both = collectives.joined([DGX_H100.reducing(), HGX_H800.reducing()])
    assert (both.nvls, both.sharp_s) == (None, None)
    at_speed = collectives.joined(
        [DGX_H100.reducing(), DGX_H100.reducing().at_speed(RelativeSpeed(rails=0.5))]
    )
    assert at_speed.sharp_s == INFINIBAND_HDR.sharp_s
    ringed = replace(HGX_H800, algorithms=(Algorithm.TREE,))
    assert collectives.joined([DGX_H100, ringed]).algorithms == (Algorithm.TREE,)
    size = 1e8
    apart = [collectives.all_reduce_s(size, Group(each, 4, 8)) for each in (DGX_H100, HGX_H800)]
    assert collectives.all_reduce_s(size, Group(both, 4, 8)) >= max(apart)


def test_a_gang_that_is_even_takes_what_it_takes_on_one_machine() -> None:
    for machine in (
        DGX_A100,
        DGX_H100.at_speed(RelativeSpeed(products=0.8, memory=0.9, rails=0.5)),
    ):
        alone = step.predict(*FOUR_BY_TWO.parts, machine)
        found = gang(machine, machine)
        assert found.predicted(np.arange(8) % 2, {}, ()).total == pytest.approx(alone.total)


def test_a_slow_node_costs_the_least_on_a_stage_with_time_left() -> None:
    """The last stage tells the next tokens too."""
    found = gang(DGX_H100, DGX_H100.at_speed(RelativeSpeed(products=0.95)))
    even_s = took_s(found)
    steps_s = [took_s(found, rank) for rank in range(8)]
    assert steps_s[0] == pytest.approx(even_s, rel=0.005)
    assert steps_s[3] > 1.015 * even_s
    assert steps_s[:4] == steps_s[4:]


def test_the_second_slow_node_costs_nothing_where_one_is_already() -> None:
    """Replicas wait for each other: two on one stage cost no more than one."""
    found = gang(DGX_H100, DGX_H100.at_speed(RelativeSpeed(products=0.5)))
    assert took_s(found, 0, 4) == pytest.approx(took_s(found, 0))
    assert took_s(found, 0, 1) > 1.01 * took_s(found, 0)


def test_a_stage_with_fewer_layers_has_time_left_for_a_slow_node() -> None:
    """Of 30 layers on four stages DeepSpeed gives the first two one more."""
    split = Parallelism(tensor=8, pipeline=4, data=2)
    recipe = replace(RECIPE, framework=Framework.DEEPSPEED)
    found = gang(
        DGX_H100,
        DGX_H100.at_speed(RelativeSpeed(products=0.85, memory=0.85)),
        workload=Workload(GPT, split, recipe),
    )
    assert [ranks.tolist() for ranks in found.stages] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert heterogeneous.shares(GPT, split, Framework.DEEPSPEED) == (1.0, 1.0, 7 / 8, 1.0)
    assert took_s(found, 4) < 0.99 * took_s(found, 0)


@pytest.mark.parametrize(
    ("layers", "virtual", "framework", "expected"),
    [
        (32, 1, Framework.DEEPSPEED, (1.0, 1.0, 1.0, 1.0)),
        (29, 1, Framework.DEEPSPEED, (1.0, 7 / 8, 7 / 8, 1.0)),
        (30, 2, Framework.DEEPSPEED, (1.0, 1.0, 7 / 8, 1.0)),
        (31, 1, Framework.MEGATRON, (1.0, 1.0, 1.0, 1.0)),
        (30, 1, Framework.MEGATRON, (7 / 8, 1.0, 1.0, 1.0)),
        (29, 1, Framework.TORCH, (7 / 8, 1.0, 1.0, 1.0)),
        (10, 2, Framework.MEGATRON, (2 / 3, 1.0, 1.0, 1.0)),
    ],
)
def test_stages_share_layers_as_their_framework_does(
    layers: int, virtual: int, framework: Framework, expected: tuple[float, ...]
) -> None:
    split = Parallelism(pipeline=4, virtual=virtual)
    assert heterogeneous.shares(replace(GPT, layers=layers), split, framework) == pytest.approx(
        expected
    )


def test_where_nothing_is_sent_the_slowest_still_decides() -> None:
    found = GangModel(FOUR_BY_TWO, (DGX_H100, DGX_H100.at_speed(RelativeSpeed(products=0.5))), ())
    assert took_s(found, 0) > took_s(found)


def test_a_node_with_several_stages_is_in_all_of_them() -> None:
    workload = Workload(GPT, Parallelism(tensor=2, pipeline=4, data=2), RECIPE)
    found = gang(DGX_H100, DGX_H100.at_speed(RelativeSpeed(products=0.5)), workload=workload)
    assert [ranks.tolist() for ranks in found.stages] == [[0, 1]] * 4
    assert took_s(found, 0, nodes=2) == pytest.approx(took_s(found, 0, 1, nodes=2))


def scheduled_s(forward_s: list[float], backward_s: list[float], micro_batches: int) -> float:
    """What a pipeline takes whose stages do one micro-batch forward, one back, each as soon as it
    can: worked out task by task."""
    stages = len(forward_s)
    orders = []
    for stage in range(stages):
        ahead = min(stages - stage - 1, micro_batches)
        tasks = [("forward", at) for at in range(ahead)]
        for at in range(micro_batches - ahead):
            tasks += [("forward", ahead + at), ("back", at)]
        orders.append(tasks + [("back", at) for at in range(micro_batches - ahead, micro_batches)])
    ended: dict[tuple[str, int, int], float] = {}
    free_s = [0.0] * stages
    while any(orders):
        for stage, tasks in enumerate(orders):
            while tasks:
                way, at = tasks[0]
                first = stage == (0 if way == "forward" else stages - 1)
                before = way, stage + (-1 if way == "forward" else 1), at
                if not first and before not in ended:
                    break
                took_s = (forward_s if way == "forward" else backward_s)[stage]
                began_s = max(free_s[stage], 0.0 if first else ended[before])
                free_s[stage] = ended[way, stage, at] = began_s + took_s
                tasks.pop(0)
    return max(free_s)


@pytest.mark.parametrize("products", [0.97, 0.9, 0.7, 0.4])
@pytest.mark.parametrize("rank", range(4))
@pytest.mark.parametrize("micro_batches", [4, 32])
def test_waiting_stages_take_predicted_time(products: float, rank: int, micro_batches: int) -> None:
    """Held against a schedule in which each task waits for what it needs. Where there are as few
    micro-batches as stages, and one is very slow, others are done meanwhile: then it is less."""
    recipe = replace(RECIPE, global_batch=2 * micro_batches)
    workload = replace(FOUR_BY_TWO, model=replace(GPT, layers=32), recipe=recipe)
    slow = DGX_H100.at_speed(RelativeSpeed(products=products))
    its = [work.of(*workload.parts, slow if at == rank else DGX_H100) for at in range(4)]
    forward_s = [each.layers - each.backward for each in its]
    backward_s = [each.backward for each in its]
    # The last stage's output is a product forward and two back.
    forward_s[3] += its[3].output / 3
    backward_s[3] += its[3].output * 2 / 3
    found = gang(DGX_H100, slow, workload=workload)
    parts = dict(found.predicted((np.arange(8) == rank).astype(np.int64), {}, ()).parts)
    computed = ("matrix products", "attention", "memory", "output", "pipeline bubble")
    told_s = sum(parts.get(name, 0.0) for name in computed)
    # To fill and drain it each stage waits for the others' messages too.
    told_s -= 3 * (parts["tensor"] + parts["pipeline"]) / micro_batches
    takes_s = scheduled_s(forward_s, backward_s, micro_batches)
    assert told_s > 0.97 * takes_s
    assert told_s < (1.03 if products >= 0.9 or micro_batches > 4 else 1.2) * takes_s
