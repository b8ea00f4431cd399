"""The flows of a step, counted by hand, and the sum of phases."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench import step_flows
from bench.step_flows import Phase
from railwright_scheduler.communication import parameters
from railwright_scheduler.cost import step
from railwright_scheduler.cost.hardware import DGX_H100
from railwright_scheduler.model.workload import Parallelism, Recipe, Sharding, Transformer, Workload

GPT = Transformer(8, 1024, 16, 16, 64, 4096, 32_000)
MIXTURE = replace(GPT, experts=16, chosen=2)
RECIPE = Recipe(1024, 1, 8, sequence_parallel=True)
TOKENS_BYTES = 2 * 1024 * 1024
"""A micro-batch's activations between two layers."""


def only(found: tuple[Phase, ...], name: str) -> dict[tuple[int, int], float]:
    (phase,) = (each for each in found if each.names == (name,))
    return {(one, other): size for one, other, size in phase.flows}


def test_activations_go_one_way_and_gradients_come_the_other() -> None:
    """Eight micro-batches; each of a node's eight ranks sends an eighth of its activations."""
    split = Parallelism(tensor=8, pipeline=3)
    sent = only(step_flows.phases(Workload(GPT, split, RECIPE), 8), "pipeline")
    assert sent == dict.fromkeys([(0, 1), (1, 0), (1, 2), (2, 1)], 8 * TOKENS_BYTES)


def test_a_ring_goes_around_once_for_all_ranks_of_a_node() -> None:
    """Of three parts of the sum each rank sends two, twice: to be summed and to be told."""
    split = Parallelism(tensor=8, data=3)
    workload = Workload(GPT, split, replace(RECIPE, global_batch=9))
    sent = only(step_flows.phases(workload, 8), "data")
    assert {*sent} == {(0, 1), (1, 2), (2, 0)}
    held, _ = parameters.held(GPT, split)
    assert [*sent.values()] == pytest.approx([4 / 3 * 2 * 8 * held] * 3, rel=1e-6)


def test_a_ring_over_whole_nodes_leaves_each_of_them_once() -> None:
    split = Parallelism(data=16)
    recipe = replace(RECIPE, global_batch=16, sharding=Sharding.PARAMETERS)
    sent = only(step_flows.phases(Workload(GPT, split, recipe), 8), "data")
    assert {*sent} == {(0, 1), (1, 0)}


def test_experts_are_sent_to_by_every_rank_of_every_other_node() -> None:
    """Of what a rank sends a sixteenth goes to each rank: from a node's eight to another's."""
    split = Parallelism(data=16, expert=16)
    recipe = replace(RECIPE, global_batch=16)
    sent = only(step_flows.phases(Workload(MIXTURE, split, recipe), 8), "expert")
    each = 2 * TOKENS_BYTES * (2 * 2 * 8) / 16
    assert sent == {(0, 1): 64 * each, (1, 0): 64 * each}


def test_flows_beside_one_phase_run_at_once() -> None:
    split = Parallelism(data=32, expert=8)
    recipe = replace(RECIPE, global_batch=32, overlap=True)
    (phase,) = step_flows.phases(Workload(MIXTURE, split, recipe), 8)
    assert phase.names == ("data", "expert data")


@pytest.mark.parametrize("micro_batches", [1, 4])
def test_phases_as_long_as_predicted_add_up(
    micro_batches: int,
) -> None:
    """Their sum is the predicted step time."""
    split = Parallelism(tensor=8, pipeline=4, data=2)
    workload = Workload(GPT, split, replace(RECIPE, global_batch=2 * micro_batches))
    predicted = step.predict(*workload.parts, DGX_H100)
    parts = dict(predicted.parts)
    took_s = {phase: parts[phase.names[0]] for phase in step_flows.phases(workload, 8)}
    assert {phase.names for phase in took_s} == {("pipeline",), ("data",)}
    assert step_flows.step_s(workload, DGX_H100, took_s) == pytest.approx(predicted.total)


def test_overlap_counts_by_multiprocessors() -> None:
    """Hidden communication slows the products by its multiprocessors."""
    split = Parallelism(tensor=8, data=4)
    workload = Workload(GPT, split, replace(RECIPE, overlap=True))
    (phase,) = step_flows.phases(workload, 8)
    least_s = step_flows.step_s(workload, DGX_H100, {phase: 0.0})
    parts = dict(step.predict(*workload.parts, DGX_H100).parts)
    backward_s = sum(parts[name] for name in step_flows.LAYERS) / 2 * 2 / 3
    lacking_s = backward_s * 16 / 132
    for its_s, longer_s in ((backward_s / 2, lacking_s / 2), (backward_s + 1.0, lacking_s + 1.0)):
        found_s = step_flows.step_s(workload, DGX_H100, {phase: its_s})
        assert found_s == pytest.approx(least_s + longer_s)
