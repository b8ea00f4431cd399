"""The model of a step's time on cases that can be worked out by hand."""

from __future__ import annotations

import ast
import inspect
from dataclasses import replace

import pytest

from fixtures.models import MIXTURE
from railwright_scheduler.communication import parameters
from railwright_scheduler.cost import collectives, hardware, kernels, step, transformer
from railwright_scheduler.cost.collectives import Group
from railwright_scheduler.cost.hardware import (
    A100,
    CAST_ISSUED_S,
    COLLECTIVE_BLOCKS,
    COLLECTIVE_S,
    DGX_A100,
    DGX_H100,
    H100,
    ISSUE_CLOCK,
    ISSUED_S,
    LAUNCH_S,
    NETWORK_STEP_S,
    NVLINK_STEP_S,
    Device,
)
from railwright_scheduler.cost.kernels import Product
from railwright_scheduler.model.workload import (
    Optimizer,
    Parallelism,
    Precision,
    Recipe,
    Recompute,
    Routing,
    Sharding,
    Transformer,
)

GIB = 1 << 30
GPT = Transformer(
    layers=24,
    hidden=2304,
    heads=24,
    kv_heads=24,
    head_size=96,
    feed_forward=4 * 2304,
    vocabulary=51_200,
    biased=True,
)
MIXED = Recipe(sequence=2048, micro_batch=1, global_batch=64)
RECIPE = Recipe(sequence=2048, micro_batch=4, global_batch=64, fused_attention=False)


def group(nodes: int, per_node: int) -> Group:
    return Group(DGX_A100, nodes, per_node)


def test_a_ring_within_a_node_takes_its_steps_and_its_bytes() -> None:
    expected = COLLECTIVE_S + 14 * NVLINK_STEP_S + 2 * 7 / 8 * GIB / 232e9
    assert collectives.all_reduce_s(GIB, group(1, 8)) == pytest.approx(expected)


def test_a_ring_over_nodes_goes_as_fast_as_all_adapters_of_one() -> None:
    steps_s = 2 * (28 * NVLINK_STEP_S + 3 * NETWORK_STEP_S)
    expected = COLLECTIVE_S + steps_s + 2 * 31 / 32 * GIB / (8 * 24e9)
    assert collectives.all_reduce_s(GIB, group(4, 8)) == pytest.approx(expected)


def test_reduce_scatter_and_all_gather_make_an_all_reduce() -> None:
    """Together they take the time of an all-reduce plus one start."""
    halves_s = 2 * collectives.reduce_scatter_s(GIB, group(4, 8))
    assert halves_s == pytest.approx(collectives.all_reduce_s(GIB, group(4, 8)) + COLLECTIVE_S)


def test_an_all_to_all_sends_one_message_to_each_other_node() -> None:
    messages_s = 7 * NVLINK_STEP_S + 3 * NETWORK_STEP_S
    expected = COLLECTIVE_S + messages_s + 7 / 32 * GIB / 210e9 + 24 / 32 * GIB / 24e9
    assert collectives.all_to_all_s(GIB, group(4, 8)) == pytest.approx(expected)


def test_token_crosses_network_once_per_node_and_is_forwarded() -> None:
    """Ranks of the target node forward it while others arrive."""
    # Of 4 experts on 4 ranks of 2 nodes each token goes to 2: 6 pairs, 2 of them on one node.
    routing = Routing(experts=4, chosen=2)
    nodes, ranks = 2 * (1 - 1 / 6), 2
    assert routing.reached(2, 2) == pytest.approx((nodes, ranks))
    within_s, beyond_s = GIB * ranks / 2 / 210e9, GIB * nodes / 2 / 24e9
    messages_s = NVLINK_STEP_S + NETWORK_STEP_S
    expected = COLLECTIVE_S + LAUNCH_S + 3 * messages_s + max(within_s, beyond_s)
    assert collectives.dispatch_s(GIB, routing, group(2, 2)) == pytest.approx(expected)


def test_a_token_that_goes_to_few_nodes_goes_to_each_of_them() -> None:
    nodes, ranks = Routing(experts=256, chosen=8, nodes=4).reached(8, 8)
    assert nodes == 4
    # 8 of the 128 experts of 4 nodes, on 32 ranks of 4: C(124, 8) / C(128, 8) miss one.
    assert ranks == pytest.approx(32 * (1 - 0.770019), rel=1e-5)


def test_pushes_to_a_server_arrive_one_after_the_other() -> None:
    """The time grows with the number of workers that push."""
    # Each of 4 servers gets a quarter of what 12 have.
    expected = NETWORK_STEP_S + 12 / 4 * GIB / 24e9
    assert collectives.served_s(GIB, 4, group(3, 4)) == pytest.approx(expected)
    # Where there are more servers than ranks, these are the slower, also those of one node.
    expected = NETWORK_STEP_S + GIB / 24e9
    assert collectives.served_s(GIB, 12, group(1, 4)) == pytest.approx(expected)


def test_no_communication_takes_no_time() -> None:
    alone = group(1, 1)
    for collective in (collectives.all_reduce_s, collectives.all_to_all_s):
        assert collective(GIB, alone) == 0.0
    assert collectives.dispatch_s(GIB, MIXTURE.routing, alone) == 0.0


def test_no_parameter_is_fitted_to_the_test_data() -> None:
    sources = inspect.getsource(hardware)
    for evaluation in ("SimAI", "cases_april2021", "performance-summary", "DeepEP"):
        assert evaluation not in sources


def test_every_figure_has_a_source() -> None:
    text = inspect.getsource(hardware)
    lines, body = text.splitlines(), ast.parse(text).body
    for before, statement, after in zip(body, body[1:], [*body[2:], None], strict=False):
        if isinstance(statement, ast.Assign) and _has_figures(statement):
            around = lines[before.end_lineno or 0 : statement.end_lineno]
            assert any("# " in line for line in around) or isinstance(after, ast.Expr), around


def _has_figures(statement: ast.stmt) -> bool:
    constants = (each for each in ast.walk(statement) if isinstance(each, ast.Constant))
    return any(isinstance(each.value, float) for each in constants)


@pytest.mark.parametrize("device", [A100, H100])
def test_the_product_that_a_rate_was_measured_on_reaches_it(device: Device) -> None:
    for precision, measured in device.matmul.items():
        product = Product(measured.m, measured.n, measured.k)
        seconds = kernels.product_s(product, device, precision) - LAUNCH_S
        assert product.operations / seconds == pytest.approx(measured.flops)


def test_extra_row_of_tiles_takes_another_wave() -> None:
    fits = Product(256 * 108, 128, 4096)
    more = Product(256 * 109, 128, 4096)
    whole_s, again_s = (
        kernels.product_s(each, A100, Precision.HALF) - LAUNCH_S for each in (fits, more)
    )
    assert 1.25 < again_s / whole_s <= 2.0


def test_a_small_product_is_as_slow_as_memory() -> None:
    product = Product(2048, 2048, 16, batch=64)
    values = 64 * (2 * 2048 * 16 + 2048 * 2048)
    memory_s = 2 * values / A100.memory
    assert memory_s < kernels.product_s(product, A100, Precision.HALF) < 1.6 * memory_s


def test_the_products_of_a_layer_are_all_of_its_operations() -> None:
    # 24 b s h^2 (1 + s / 6h): Narayanan et al., 2021.
    layer = transformer.layer(GPT, Parallelism(), RECIPE)
    expected = 24 * 4 * 2048 * 2304**2 * (1 + 2048 / (6 * 2304))
    forward = sum(product.operations for product in layer.forward.products)
    backward = sum(product.operations for product in layer.backward.products)
    assert forward == pytest.approx(expected)
    assert backward == 2 * forward


def test_a_layer_is_as_fast_as_was_published() -> None:
    # Korthikanti et al., 2022, table 4: 7.7 and 11.9 ms for a layer of the model of 22 billion.
    model = Transformer(48, 6144, 64, 64, 96, 4 * 6144, 51_200, biased=True)
    recipe = Recipe(sequence=2048, micro_batch=4, global_batch=4, fused_attention=False)
    found = step.predict(model, Parallelism(tensor=8), recipe, DGX_A100)
    parts = dict(found.parts)
    layers_s = parts["matrix products"] + parts["memory"] + parts["tensor"]
    assert layers_s / 48 == pytest.approx(19.6e-3, rel=0.08)


@pytest.mark.parametrize(
    ("optimizer", "disks_s"),
    [(Optimizer.HOST, 0.0), (Optimizer.DISK, 12 * (1 / 56e9 + 1 / 30.4e9))],
)
def test_an_optimizer_on_the_host_shares_its_memory_and_disks(
    optimizer: Optimizer, disks_s: float
) -> None:
    split = Parallelism(data=8)
    recipe = replace(RECIPE, optimizer=optimizer, sharding=Sharding.GRADIENTS)
    found = dict(step.predict(GPT, split, recipe, DGX_A100).parts)
    share = parameters.held(GPT, split)[0] // 8
    assert found["optimizer"] == pytest.approx(28 * 8 * share / 409.6e9)
    copied_s = 2 * (LAUNCH_S + 2 * share / 24.8e9)
    assert found["offload"] == pytest.approx(copied_s + 8 * share * disks_s)


def test_servers_update_the_weights_that_they_hold() -> None:
    split = Parallelism(tensor=2, data=8, servers=4)
    found = dict(step.predict(GPT, split, RECIPE, DGX_A100).parts)
    pushed = parameters.held(GPT, split)[0]
    assert found["servers"] == pytest.approx(2 * (NETWORK_STEP_S + 16 / 4 * 2 * pushed / 24e9))
    held = 2 * pushed // 4
    assert found["optimizer"] == pytest.approx(60 * held / A100.memory + LAUNCH_S)


@pytest.mark.parametrize(
    ("layers", "hidden", "heads", "stages", "batch", "micro_batch", "whole_s", "part_s"),
    [
        (48, 6144, 64, (1, 1), 4, 4, 1.42, 1.10),
        (96, 12_288, 96, (8, 3), 64, 1, 18.13, 13.75),
        (105, 20_480, 128, (35, 3), 280, 1, 49.05, 37.83),
        (128, 25_600, 160, (64, 1), 512, 1, 94.42, 71.49),
    ],
)
def test_a_step_is_as_long_as_was_published(
    layers: int,
    hidden: int,
    heads: int,
    stages: tuple[int, int],
    batch: int,
    micro_batch: int,
    whole_s: float,
    part_s: float,
) -> None:
    # Korthikanti et al., 2022, table 5: all recomputed, or attention of a sequence that is shared.
    size = hidden // heads
    model = Transformer(layers, hidden, heads, heads, size, 4 * hidden, 51_200, biased=True)
    split = Parallelism(tensor=8, pipeline=stages[0], virtual=stages[1])
    whole = Recipe(2048, micro_batch, batch, recompute=Recompute.LAYERS, fused_attention=False)
    part = replace(whole, recompute=Recompute.ATTENTION, sequence_parallel=True)
    assert step.predict(model, split, whole, DGX_A100).total == pytest.approx(whole_s, rel=0.05)
    assert step.predict(model, split, part, DGX_A100).total == pytest.approx(part_s, rel=0.06)


@pytest.mark.parametrize(
    ("context", "data", "sequence", "batch", "throughput"),
    [(1, 64, 8192, 2048, 430e12), (1, 128, 8192, 2048, 400e12), (16, 8, 131_072, 128, 380e12)],
)
@pytest.mark.parametrize("virtual", [4, 7])
def test_uneven_layers_are_shared(
    context: int, data: int, sequence: int, batch: int, throughput: float, virtual: int
) -> None:
    # The Llama 3 Herd of Models, 2024, table 4: how many stages a rank has is not said.
    model = Transformer(126, 16_384, 128, 8, 128, 53_248, 128_256, gated=True)
    split = Parallelism(tensor=8, context=context, pipeline=16, virtual=virtual, data=data)
    recipe = Recipe(sequence, 1, batch, sequence_parallel=True, fused_loss=True, gradient_bytes=4)
    recipe = replace(recipe, sharding=Sharding.OPTIMIZER, overlap=True)
    tokens = batch * sequence
    operations = 6 * 405e9 * tokens + 6 * 126 * 16_384 * sequence * tokens
    found = operations / split.ranks / step.predict(model, split, recipe, DGX_H100).total
    assert found == pytest.approx(throughput, rel=0.1)


def test_the_parts_are_the_whole_largest_first() -> None:
    found = step.predict(GPT, Parallelism(tensor=2, pipeline=4, data=4), RECIPE, DGX_A100)
    assert sum(seconds for _, seconds in found.parts) == pytest.approx(found.total)
    assert [part for _, part in found.parts] == sorted((p for _, p in found.parts), reverse=True)
    assert min(seconds for _, seconds in found.parts) > 0


def test_experts_multiply_each_token_as_often_as_it_chose() -> None:
    split = Parallelism(tensor=2, data=8, expert=8)
    layer = transformer.layer(MIXTURE, split, MIXED)
    tokens = 2048 // 2
    attention = 2 * 2048 * 1024 * 64 * (16 + 2 * 16 + 16) // 2
    feed_forward = 2 * tokens * 8 * 3 * 1024 * 512
    router = 2 * tokens * 64 * 1024
    forward = sum(product.operations for product in layer.forward.products)
    assert forward == attention + feed_forward + router
    assert sum(product.operations for product in layer.backward.products) == 2 * forward
    kernels_run = [(each.batch, each.times) for each in layer.forward.products]
    assert kernels_run == [(1, 1), (1, 1), (1, 1), (4, 2), (4, 2)]


def test_a_host_that_issues_many_small_kernels_decides() -> None:
    split = Parallelism(data=8, expert=8)
    found = dict(step.predict(MIXTURE, split, MIXED, DGX_H100).parts)
    layer_s = ISSUED_S * ISSUE_CLOCK / DGX_H100.host.clock
    layers = ("matrix products", "attention", "memory", "expert", "host")
    assert sum(found[part] for part in layers) == pytest.approx(8 * 16 * layer_s)


def test_fp8_conversion_takes_three_kernels_per_expert() -> None:
    """The cost model counts three kernels for each expert."""
    split = Parallelism(data=8, expert=8)
    narrow = replace(MIXED, precision=Precision.FP8)
    found = dict(step.predict(MIXTURE, split, narrow, DGX_H100).parts)
    layer_s = (ISSUED_S + 4 * (8 + 1) * 3 * CAST_ISSUED_S) * ISSUE_CLOCK / DGX_H100.host.clock
    layers = ("matrix products", "attention", "memory", "expert", "host")
    assert sum(found[part] for part in layers) == pytest.approx(8 * 16 * layer_s)


def test_a_host_is_not_ahead_of_a_pass_forward() -> None:
    # Over both passes the device takes longer, but in the one forward it waits.
    split, mixed = Parallelism(data=8, expert=8), replace(MIXED, micro_batch=11, global_batch=88)
    found = dict(step.predict(MIXTURE, split, mixed, DGX_H100).parts)
    issued_s = 16 * ISSUED_S * ISSUE_CLOCK / DGX_H100.host.clock
    waited = ("matrix products", "attention", "memory", "expert")
    assert sum(found[part] for part in waited) > issued_s
    assert 0 < found["host"] < issued_s / 2


def test_tokens_go_to_experts_beside_another_micro_batch() -> None:
    split = Parallelism(data=64, expert=64)
    mixed = replace(MIXED, global_batch=64)
    waited = dict(step.predict(MIXTURE, split, mixed, DGX_H100).parts)
    beside = replace(mixed, overlap_experts=True)
    hidden = dict(step.predict(MIXTURE, split, beside, DGX_H100).parts)
    busy_s = sum(waited[part] for part in ("matrix products", "attention", "memory"))
    assert hidden["expert"] == pytest.approx(waited["expert"] - busy_s * (1 - 16 / 132))


def test_overlapped_communication_takes_multiprocessors() -> None:
    """Overlapped products have fewer multiprocessors and take longer."""
    split, deeper = Parallelism(tensor=4), replace(GPT, layers=2 * GPT.layers)
    shared = replace(RECIPE, sequence_parallel=True)
    beside = replace(shared, overlap_tensor=True)
    waited, hidden = (
        dict(step.predict(GPT, split, each, DGX_H100).parts) for each in (shared, beside)
    )
    assert waited["tensor"] < waited["matrix products"]
    # What tables of tokens send is waited for either way, and as much for any number of layers.
    waited_s, hidden_s = (
        dict(step.predict(deeper, split, each, DGX_H100).parts)["tensor"] - its["tensor"]
        for each, its in ((shared, waited), (beside, hidden))
    )
    assert hidden_s == pytest.approx(waited_s * COLLECTIVE_BLOCKS / 132)
    # They go on in pieces then, which do not fill the device as well.
    assert waited["matrix products"] < hidden["matrix products"] < 1.5 * waited["matrix products"]


def test_half_of_the_offload_hides_in_the_backward_pass() -> None:
    alone = replace(RECIPE, optimizer=Optimizer.HOST)
    waited, hidden = (
        dict(step.predict(GPT, Parallelism(), each, DGX_A100).parts)["offload"]
        for each in (alone, replace(alone, overlap=True))
    )
    assert hidden == pytest.approx(waited / 2)


def test_products_that_wait_for_others_go_on_in_pieces() -> None:
    beside = replace(RECIPE, sequence_parallel=True, overlap_tensor=True)
    whole, cut = (
        transformer.layer(GPT, Parallelism(tensor=4), each)
        for each in (replace(beside, overlap_tensor=False), beside)
    )
    assert [each.times for each in cut.forward.products] == [4, 4, 1, 1, 4, 4]
    assert sum(each.times for each in cut.backward.products) == len(whole.backward.products) + 2 * 3
    for one, other in ((cut.forward, whole.forward), (cut.backward, whole.backward)):
        operations = [sum(each.operations for each in these.products) for these in (one, other)]
        assert operations[0] == operations[1]


def test_fused_loss_reads_logits_three_times_writes_twice() -> None:
    """The memory traffic of the fused loss is five times the logits."""
    fused = replace(RECIPE, fused_loss=True, precision=Precision.FP8)
    logits = 4 * 2048 * 51_200
    product = Product(4 * 2048, 51_200, 2304)
    products_s = sum(
        kernels.product_s(each, H100, Precision.HALF) for each in (product, *product.gradients)
    )
    found = dict(step.predict(GPT, Parallelism(), fused, DGX_H100).parts)
    assert found["output"] == pytest.approx(
        16 * (products_s + 2 * 5 * logits / H100.memory + LAUNCH_S)
    )


def test_forwarded_tokens_take_less_network_time() -> None:
    split = Parallelism(data=64, expert=64)
    mixed = replace(MIXED, global_batch=64)
    once = replace(mixed, forwarded=True)
    few = replace(MIXTURE, chosen_nodes=2)
    exchanged = [
        dict(step.predict(model, split, recipe, DGX_H100).parts)["expert"]
        for model, recipe in ((few, once), (MIXTURE, once), (MIXTURE, mixed))
    ]
    assert exchanged[0] < exchanged[1] < exchanged[2]


def test_overlapping_traffic_shares_backward_pass_time() -> None:
    slow = replace(DGX_H100, network=replace(DGX_H100.network, bandwidth=1e9))
    split = Parallelism(tensor=8, data=8, expert=8)
    waited = dict(step.predict(MIXTURE, split, MIXED, slow).parts)
    beside = dict(step.predict(MIXTURE, split, replace(MIXED, overlap=True), slow).parts)
    hidden_s = sum(waited[name] - beside.get(name, 0.0) for name in ("data", "expert data"))
    layers_s = sum(waited[name] for name in ("matrix products", "attention", "memory"))
    assert 0 < hidden_s < layers_s / 8


def test_weights_of_experts_are_updated_where_their_replicas_are() -> None:
    split = Parallelism(tensor=2, data=32, expert=16)
    dense, experts = parameters.held(MIXTURE, split)
    assert experts == 16 * 64 * 3 * 1024 * 512 // 16
    sharded = replace(MIXED, global_batch=32, sharding=Sharding.OPTIMIZER)
    found = dict(step.predict(MIXTURE, split, sharded, DGX_H100).parts)
    updated = dense // 32 + experts // (64 // 16)
    assert found["optimizer"] == pytest.approx(60 * updated / H100.memory + LAUNCH_S)
