"""Communicators and their bytes, on cases that can be computed by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fixtures.models import MIXTURE
from railwright_scheduler.communication import derive, graph, parameters
from railwright_scheduler.communication.graph import Overlap
from railwright_scheduler.communication.grid import Axis, Grid, dense, experts
from railwright_scheduler.model.workload import (
    Attention,
    Framework,
    Optimizer,
    Parallelism,
    Precision,
    Recipe,
    Recompute,
    Sharding,
    Transformer,
)

GPT = Transformer(
    layers=16,
    hidden=1024,
    heads=16,
    kv_heads=4,
    head_size=64,
    feed_forward=4096,
    vocabulary=32_000,
)
STREAM = 2 * 2 * 2048 * 1024
"""Bytes of a micro-batch of two sequences."""

WITHHELD = 16 * (1024 * 64 * 2 * 20 + 2 * 1024 * 4096 + 2 * 1024) + 2 * 32_000 * 1024 + 1024
"""Parameters: matrices and norms of layers, two tables of tokens, the last norm."""


def recipe(**named: object) -> Recipe:
    return Recipe(sequence=2048, micro_batch=2, global_batch=64, **named)  # type: ignore[arg-type]


def sent(model: Transformer, split: Parallelism, of: Recipe) -> dict[str, int]:
    return {each.name: each.sent for each in derive.communicators(model, split, of)}


def test_ranks_that_differ_along_an_axis_are_a_group() -> None:
    grid = Grid(((Axis.TENSOR, 2), (Axis.DATA, 3), (Axis.PIPELINE, 2)))
    assert grid.groups(Axis.TENSOR).tolist()[:2] == [[0, 1], [2, 3]]
    assert grid.groups(Axis.DATA).tolist()[:2] == [[0, 2, 4], [1, 3, 5]]
    assert grid.groups(Axis.PIPELINE).tolist()[0] == [0, 6]
    assert grid.groups(Axis.TENSOR, Axis.DATA).tolist() == [
        [0, 1, 2, 3, 4, 5],
        [6, 7, 8, 9, 10, 11],
    ]
    assert grid.groups(Axis.EXPERT).shape == (12, 1)


@pytest.mark.parametrize("axes", [((Axis.DATA, 2), (Axis.DATA, 2)), ((Axis.DATA, 0),)])
def test_a_grid_that_is_none_is_refused(axes: tuple[tuple[Axis, int], ...]) -> None:
    with pytest.raises(ValueError, match="an axis"):
        Grid(axes)


def test_tensor_ranks_reduce_four_times_a_layer_and_per_table() -> None:
    """Twice forward and twice backward, and once for each embedding table."""
    found = sent(GPT, Parallelism(tensor=4), recipe())
    assert found == {"tensor": 32 * (16 * 4 + 2) * 2 * 3 * STREAM // 4}
    again = sent(GPT, Parallelism(tensor=4), recipe(recompute=Recompute.LAYERS))
    assert again == {"tensor": 32 * (16 * 6 + 2) * 2 * 3 * STREAM // 4}
    staged = sent(GPT, Parallelism(tensor=4, pipeline=2), recipe(framework=Framework.TORCH))
    assert staged["tensor"] == 32 * (8 * 4 + 1) * 2 * 3 * STREAM // 4


@pytest.mark.parametrize(
    ("framework", "layer", "tables"), [(Framework.MEGATRON, 10, 5), (Framework.TORCH, 8, 4)]
)
def test_split_sequence_sends_as_much_and_megatron_inputs_again(
    framework: Framework, layer: int, tables: int
) -> None:
    """Sequence parallelism replaces all-reduces by equal bytes; Megatron gathers inputs once
    more."""
    shared = recipe(sequence_parallel=True, framework=framework)
    found = sent(GPT, Parallelism(tensor=4), shared)
    assert found == {"tensor": 32 * (16 * layer + tables) * 3 * STREAM // 4}


def test_fp8_products_gather_8_bit_values() -> None:
    of = recipe(sequence_parallel=True, precision=Precision.FP8)
    # Of the five a pair of products has, three are gathered.
    assert sent(GPT, Parallelism(tensor=4), of) == {
        "tensor": 32 * (16 * 2 * (3 * 3 * STREAM // 8 + 2 * 3 * STREAM // 4) + 5 * 3 * STREAM // 4)
    }


def test_replicas_reduce_their_gradients_once() -> None:
    for sharding in (Sharding.NONE, Sharding.OPTIMIZER):
        found = sent(GPT, Parallelism(data=8), recipe(sharding=sharding))
        assert found == {"data": 2 * 7 * 2 * WITHHELD // 8}
    whole = sent(GPT, Parallelism(data=8), recipe(sharding=Sharding.PARAMETERS))
    assert whole == {"data": 4 * 3 * 7 * 2 * WITHHELD // 8}


def test_pytorch_gathers_once_what_is_in_no_layer() -> None:
    of = recipe(sharding=Sharding.PARAMETERS, framework=Framework.TORCH)
    outside = 2 * 32_000 * 1024 + 1024
    found = sent(GPT, Parallelism(data=8), of)
    assert found == {"data": 4 * 7 * 2 * (3 * WITHHELD - outside) // 8}


def test_pytorch_reduces_all_gradients_with_sharded_optimizer() -> None:
    """With a sharded optimizer PyTorch still all-reduces the gradients."""
    of = recipe(sharding=Sharding.OPTIMIZER, framework=Framework.TORCH)
    assert sent(GPT, Parallelism(data=8), of) == {"data": 3 * 7 * 2 * WITHHELD // 8}


def test_parameters_include_norms_and_positions() -> None:
    split = Parallelism(tensor=2)
    plain = replace(GPT, tied=True)
    table = 32_000 * 1024 // 2
    assert parameters.outside(plain, split) == table + 1024
    assert parameters.outside(replace(plain, tied=False), split) == 2 * table + 1024
    with_positions = replace(plain, positions=2048)
    assert (
        parameters.outside(with_positions, split) - parameters.outside(plain, split) == 2048 * 1024
    )
    # The first of two stages has the places, the last the norm.
    stages = replace(split, pipeline=2)
    assert parameters.outside(with_positions, stages) == table + 2048 * 1024
    assert parameters.outside(plain, stages) == table + 1024
    dense, _ = parameters.held(plain, split)
    biased, _ = parameters.held(replace(plain, biased=True), split)
    shared, whole = (16 + 2 * 4) * 64 + 4096, 2 * 1024 + 2 * 1024
    assert biased - dense == 16 * (shared // 2 + whole) + 1024


def test_in_32_bits_twice_as_much_flows() -> None:
    split = Parallelism(tensor=2, pipeline=2)
    half, single = (
        sent(GPT, split, recipe(precision=precision))
        for precision in (Precision.HALF, Precision.SINGLE)
    )
    assert single == {name: 2 * size for name, size in half.items()}


def test_stages_send_what_flows_between_layers_both_ways() -> None:
    found = sent(GPT, Parallelism(pipeline=4, virtual=2), recipe())
    assert found == {"pipeline": 2 * 2 * 32 * STREAM}


def test_a_ring_passes_keys_and_values_on_to_all_but_their_owner() -> None:
    found = sent(GPT, Parallelism(context=4), recipe())
    keys_and_values = 2 * 2 * (2 * 2048 // 4) * 4 * 64
    assert found["context"] == 32 * 16 * 3 * 3 * keys_and_values


def test_heads_change_places_before_attention_and_after() -> None:
    found = sent(GPT, Parallelism(context=4), recipe(attention=Attention.HEADS))
    token = 2 * 64
    # Queries there and what they find back, keys and values there; 3/4 of each leaves the rank.
    each = (2 * 2048 // 4) * token * (16 + 16 + 4 + 4) * 3 // 4
    assert found["context"] == 32 * 16 * 2 * each


def test_replicas_of_shards_reduce_what_a_shard_is() -> None:
    split = Parallelism(data=32, replicas=4)
    found = sent(GPT, split, recipe(sharding=Sharding.PARAMETERS))
    assert found["data"] == 3 * 7 * 2 * WITHHELD // 8
    assert found["data replicas"] == 2 * 3 * (2 * WITHHELD // 8) // 4
    shards, replicas = derive.communicators(GPT, split, recipe(sharding=Sharding.PARAMETERS))
    assert shards.grid.groups(*shards.axes).tolist()[1] == [*range(8, 16)]
    assert replicas.grid.groups(*replicas.axes).tolist()[1] == [1, 9, 17, 25]


def test_replicas_without_sharding_are_ordinary_ranks() -> None:
    """Replicas count as data-parallel ranks when nothing is sharded."""
    with_replicas = sent(GPT, Parallelism(data=32, replicas=4), recipe())
    assert with_replicas == sent(GPT, Parallelism(data=32), recipe())


@pytest.mark.parametrize(("optimizer", "state"), [(Optimizer.HOST, 0), (Optimizer.DISK, 24)])
def test_host_optimizer_gets_gradients_and_returns_weights(
    optimizer: Optimizer, state: int
) -> None:
    """Offload copies gradients to the host and weights back."""
    of = recipe(sharding=Sharding.GRADIENTS, optimizer=optimizer)
    assert sent(GPT, Parallelism(data=8), of)["offload"] == (2 + 2 + state) * WITHHELD // 8
    alone = recipe(optimizer=optimizer)
    assert sent(GPT, Parallelism(), alone) == {"offload": (2 + 2 + state) * WITHHELD}


def test_ranks_push_to_servers_and_send_each_other_nothing() -> None:
    split = Parallelism(data=6, servers=2)
    of = Recipe(sequence=2048, micro_batch=2, global_batch=48)
    (found,) = derive.communicators(GPT, split, of)
    assert found.sent == 2 * WITHHELD
    assert found.ranks == 6
    assert graph.pairs((found,)) == {}


@pytest.mark.parametrize(
    ("framework", "axis", "first"),
    [
        (Framework.MEGATRON, Axis.TENSOR, [0, 1]),
        (Framework.MEGATRON, Axis.CONTEXT, [0, 2]),
        (Framework.MEGATRON, Axis.DATA, [0, 4, 8, 12]),
        (Framework.MEGATRON, Axis.PIPELINE, [0, 16]),
        (Framework.MEGATRON_PIPELINE_FIRST, Axis.PIPELINE, [0, 4]),
        (Framework.MEGATRON_PIPELINE_FIRST, Axis.DATA, [0, 8, 16, 24]),
        (Framework.DEEPSPEED, Axis.DATA, [0, 4, 8, 12]),
        (Framework.TORCH, Axis.DATA, [0, 4, 8, 12]),
    ],
)
def test_frameworks_number_ranks_along_their_axes(
    framework: Framework, axis: Axis, first: list[int]
) -> None:
    split = Parallelism(tensor=2, context=2, data=4, pipeline=2)
    assert dense(split, framework).groups(axis).tolist()[0] == first


@pytest.mark.parametrize(
    ("framework", "group", "replicas"),
    [
        (Framework.MEGATRON, [0, 1, 2, 3], [0, 4]),
        (Framework.TORCH, [0, 1, 2, 3], [0, 4]),
        (Framework.MEGATRON_PIPELINE_FIRST, [0, 1, 2, 3], [0, 8]),
        # Of a tensor-parallel group's ranks each has experts of its own.
        (Framework.DEEPSPEED, [0, 2, 4, 6], [0]),
    ],
)
def test_frameworks_spread_experts_over_ranks(
    framework: Framework, group: list[int], replicas: list[int]
) -> None:
    grid = experts(Parallelism(tensor=2, data=4, pipeline=2, expert=4), framework)
    assert grid.ranks == 16
    assert grid.groups(Axis.EXPERT).tolist()[0] == group
    assert grid.groups(Axis.DATA).tolist()[0] == replicas


def test_tensor_ranks_route_their_share_of_tokens_or_all() -> None:
    """With Megatron a rank routes its part of the tokens, with DeepSpeed all of them."""
    split = Parallelism(tensor=2, data=16, expert=8)
    part = sent(MIXTURE, split, recipe())
    whole = sent(MIXTURE, split, recipe(framework=Framework.DEEPSPEED))
    assert whole["expert"] == 2 * part["expert"]


def test_pytorch_pipeline_sends_all_from_each_tensor_rank() -> None:
    """Each rank sends the complete activation, unless the sequence is split."""
    split = Parallelism(tensor=4, pipeline=2)
    each = 2 * 32 * STREAM
    assert sent(GPT, split, recipe())["pipeline"] == each // 4
    assert sent(GPT, split, recipe(framework=Framework.TORCH))["pipeline"] == each
    shared = recipe(framework=Framework.TORCH, sequence_parallel=True)
    assert sent(GPT, split, shared)["pipeline"] == each // 4


def test_interleaved_stages_form_an_open_ring() -> None:
    """The last stage sends to the first one, except for the last chunk."""
    chain = graph.pairs(derive.communicators(GPT, Parallelism(pipeline=4), recipe()))
    ring = graph.pairs(derive.communicators(GPT, Parallelism(pipeline=4, virtual=2), recipe()))
    assert {*chain} == {(0, 1), (1, 2), (2, 3)}
    assert {*ring} == {*chain, (0, 3)}
    # Of four stages a rank, three are followed by one of the first rank's.
    found = graph.pairs(derive.communicators(GPT, Parallelism(pipeline=4, virtual=4), recipe()))
    assert found[0, 1] == 4 * chain[0, 1]
    assert found[0, 3] == 3 * chain[0, 1]


def test_interleaved_stages_overlap_sends_with_micro_batches() -> None:
    """Their sends overlap the computation of another micro-batch."""
    for virtual, expected in ((1, Overlap.NOTHING), (2, Overlap.MICRO_BATCH)):
        split = Parallelism(pipeline=4, virtual=virtual)
        (found,) = derive.communicators(GPT, split, recipe(overlap=True))
        assert {each.overlap for each in found.traffic} == {expected}


def test_tokens_go_to_their_experts_and_back_in_both_passes() -> None:
    found = sent(MIXTURE, Parallelism(data=16, expert=8), recipe())
    assert found["expert"] == 2 * 16 * 4 * 7 * 8 * STREAM // 8
    held = 16 * 64 * 3 * 1024 * 512 // 8
    assert found["expert data"] == 2 * held


def test_a_token_that_is_forwarded_goes_to_a_rank_once() -> None:
    model = replace(MIXTURE, experts=8, chosen=2)
    found = sent(model, Parallelism(data=16, expert=8), recipe(forwarded=True))
    # Of 28 pairs of experts 7 are on a rank that has one.
    assert found["expert"] == round(2 * 16 * 4 * STREAM * 8 * 7 / 28 * 7 / 8)


def test_the_graph_of_pairs_adds_up_to_what_ranks_send() -> None:
    split = Parallelism(tensor=2, data=4, pipeline=2)
    found = derive.communicators(GPT, split, recipe())
    pairs = graph.pairs(found)
    assert {rank for pair in pairs for rank in pair} == set(range(split.ranks))
    named = {each.name: each.sent for each in found}
    # Two ranks are each other's neighbours on both sides of their ring.
    assert pairs[0, 1] == 2 * named["tensor"]
    assert pairs[0, 2] == named["data"]
    assert pairs[0, 8] == named["pipeline"]
    assert (0, 4) not in pairs
