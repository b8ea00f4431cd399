"""What nodes send each other, and what it costs that they share links."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fixtures.models import MIXTURE
from railwright_scheduler.communication import derive, traffic_matrix
from railwright_scheduler.communication.graph import Collective, Communicator, Transfer
from railwright_scheduler.communication.grid import Axis, Grid, dense
from railwright_scheduler.communication.traffic_matrix import TrafficMatrix
from railwright_scheduler.cost import contention
from railwright_scheduler.cost.contention import Uplinks
from railwright_scheduler.model.workload import Framework, Parallelism, Recipe, Routing

PAIRS = dict[tuple[int, int], float]


def among(size: int, *traffic: Transfer, groups: int = 1) -> Communicator:
    """Groups of ranks that follow each other."""
    return Communicator(
        "c", Grid(((Axis.DATA, size), (Axis.PIPELINE, groups))), (Axis.DATA,), traffic
    )


def pairs(found: TrafficMatrix) -> PAIRS:
    return {
        (int(a), int(b)): float(weight)
        for a, b, weight in zip(found.a, found.b, found.weight, strict=True)
    }


def test_a_ring_enters_each_node_once() -> None:
    ring = among(8, Transfer("x", Collective.ALL_REDUCE, 800, 3))
    sent = 3 * 2 * 7 * 100
    assert pairs(traffic_matrix.between_nodes(ring, 2)) == {
        (0, 1): sent,
        (1, 2): sent,
        (2, 3): sent,
        (0, 3): sent,
    }
    assert pairs(traffic_matrix.between_nodes(ring, 8)) == {}
    assert pairs(traffic_matrix.between_nodes(ring, 4)) == {(0, 1): 2 * sent}


def test_a_chain_does_not_close() -> None:
    chain = among(3, Transfer("x", Collective.SEND, 10, 4), groups=2)
    assert pairs(traffic_matrix.between_nodes(chain, 1)) == {
        (0, 1): 40,
        (1, 2): 40,
        (3, 4): 40,
        (4, 5): 40,
    }


def test_all_to_all_sends_each_node_bytes_by_its_ranks() -> None:
    everyone = among(8, Transfer("x", Collective.ALL_TO_ALL, 800, 1))
    assert pairs(traffic_matrix.between_nodes(everyone, 4)) == {(0, 1): 2 * 4 * 4 * 100}
    uneven = among(6, Transfer("x", Collective.ALL_TO_ALL, 600, 1))
    assert pairs(traffic_matrix.between_nodes(uneven, 4)) == {(0, 1): 2 * 4 * 2 * 100}


def test_groups_of_the_same_nodes_add_up() -> None:
    grid = Grid(((Axis.TENSOR, 4), (Axis.DATA, 3)))
    rings = Communicator("c", grid, (Axis.DATA,), (Transfer("x", Collective.RING, 7, 1),))
    assert pairs(traffic_matrix.between_nodes(rings, 4)) == {(0, 1): 28, (1, 2): 28, (0, 2): 28}


def test_a_token_crosses_once_to_a_node_that_passes_it_on() -> None:
    routing = Routing(experts=8, chosen=8)
    sent = among(8, Transfer("x", Collective.DISPATCH, 100, 1, routing=routing))
    # All experts are chosen: each of 4 ranks sends its 100 bytes over once, and gets as many.
    assert pairs(traffic_matrix.between_nodes(sent, 4)) == {(0, 1): pytest.approx(2 * 4 * 100)}


def test_traffic_to_servers_is_between_no_two_ranks() -> None:
    push = Transfer("x", Collective.PUSH, 600, 1, servers=2)
    served = Communicator("c", Grid(((Axis.RANK, 6),)), (Axis.RANK,), (push,))
    assert pairs(traffic_matrix.between_nodes(served, 2)) == {}


def test_traffic_within_a_node_uses_no_link() -> None:
    alone = Communicator(
        "c", Grid(((Axis.DATA, 4),)), (), (Transfer("x", Collective.COPY, 600, 1),)
    )
    assert pairs(traffic_matrix.between_nodes(alone, 2)) == {}


@pytest.mark.parametrize(
    ("per_node", "shape"),
    [(8, (1, 6, 4)), (2, (4, 6, 4)), (16, (1, 3, 4)), (48, (1, 1, 4)), (5, (39,)), (24, (1, 2, 4))],
)
def test_nodes_are_a_grid_where_they_hold_boxes_of_ranks(
    per_node: int, shape: tuple[int, ...]
) -> None:
    grid = Grid(((Axis.TENSOR, 8), (Axis.DATA, 6), (Axis.PIPELINE, 4)))
    assert traffic_matrix.shape(grid, per_node) == shape


def test_moe_tokens_stay_among_nodes_of_a_group() -> None:
    split = Parallelism(data=32, expert=16)
    found = {
        each.name: traffic_matrix.between_nodes(each, 8)
        for each in derive.communicators(
            MIXTURE, split, Recipe(sequence=2048, micro_batch=1, global_batch=32)
        )
    }
    assert {*pairs(found["expert"])} == {(0, 1), (2, 3)}
    # The two holders of each expert are 16 ranks apart.
    assert {*pairs(found["expert data"])} == {(0, 2), (1, 3)}
    whole = traffic_matrix.together(found.values(), (4,))
    assert whole.weight.sum() == pytest.approx(sum(each.weight.sum() for each in found.values()))
    assert traffic_matrix.shape(dense(split, Framework.MEGATRON), 8) == (1, 1, 4, 1, 1)


def line(*ends: tuple[int, int]) -> TrafficMatrix:
    a, b = np.array(ends, dtype=np.int64).T
    return TrafficMatrix((int(b.max()) + 1,), a, b, np.full(len(ends), 10.0))


RACKS = Uplinks(np.array([0, 0, 1, 1]), np.array([1.0, 1.0]), 2.0)


def test_uplinks_busier_than_adapters_slow_everything() -> None:
    across = line((0, 2), (1, 3))
    assert contention.contention(across, (RACKS,)) == 2.0
    assert contention.contention(across, (replace(RACKS, capacity=np.array([2.0, 2.0])),)) == 1.0
    assert contention.contention(across, (replace(RACKS, capacity=np.array([2.0, 0.5])),)) == 4.0
    assert contention.crossing(across, RACKS.domains) == 20


def test_traffic_inside_a_domain_uses_no_uplink() -> None:
    assert contention.contention(line((0, 1), (2, 3)), (RACKS,)) == 1.0
    assert contention.crossing(line((0, 1), (2, 3)), RACKS.domains) == 0


def test_ring_crosses_an_uplink_once_in_each_direction() -> None:
    assert contention.contention(line((0, 1), (1, 2), (2, 3), (0, 3)), (RACKS,)) == 1.0


def test_narrowest_tier_decides_and_no_traffic_costs_nothing() -> None:
    rooms = Uplinks(np.array([0, 0, 1, 1]), np.array([0.25, 0.25]), 8.0)
    assert contention.contention(line((0, 2), (1, 3)), (RACKS, rooms)) == 8.0
    nobody = TrafficMatrix((4,), *(np.zeros(0, dtype=np.int64),) * 2, np.zeros(0))
    assert contention.contention(nobody, (RACKS,)) == 1.0


def test_the_same_nodes_in_another_order_of_ranks() -> None:
    swapped = RACKS.of(np.array([0, 2, 1, 3]))
    assert contention.contention(line((0, 2), (1, 3)), (swapped,)) == 1.0


def test_sampled_pairs_represent_a_very_large_group() -> None:
    everyone = among(1500, Transfer("x", Collective.ALL_TO_ALL, 1500, 1))
    found = traffic_matrix.between_nodes(everyone, 1)
    assert len(found.weight) < 100 * 1500
    sent = np.bincount(found.a, found.weight, 1500) + np.bincount(found.b, found.weight, 1500)
    assert sent == pytest.approx(np.full(1500, 2 * 1499))
    assert traffic_matrix.is_even(everyone, 1)
    for part in (100, 500, 750):
        front = np.arange(1500) < part
        crossed = found.weight[front[found.a] != front[found.b]].sum()
        assert crossed == pytest.approx(2 * part * (1500 - part), rel=0.02)


def test_group_is_even_only_with_equal_traffic_to_all() -> None:
    exchange = Transfer("x", Collective.ALL_TO_ALL, 800, 1)
    assert traffic_matrix.is_even(among(8, exchange), 2)
    assert not traffic_matrix.is_even(among(4, exchange, groups=2), 2)
    assert not traffic_matrix.is_even(among(8, Transfer("x", Collective.RING, 8, 1)), 2)
    assert not traffic_matrix.is_even(among(6, exchange), 4)
