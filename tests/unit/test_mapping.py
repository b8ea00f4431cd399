"""Ranks laid onto places: whole, by their structure, and never worse than in their own order."""

from __future__ import annotations

import numpy as np
import pytest

from fixtures import exchanging
from railwright_scheduler.communication.traffic_matrix import TrafficMatrix
from railwright_scheduler.mapping import initial_orders, mapper
from railwright_scheduler.mapping.problem import Places, cost

BUDGET = 40_000
DISTANCE = (1.0, 10.0, 40.0, 80.0)


def test_boxes_tile_the_grid() -> None:
    assert sorted(initial_orders.boxes((4, 6), 8)) == [(4, 2)]
    assert sorted(initial_orders.boxes((8, 12), 4)) == [(1, 4), (2, 2), (4, 1)]
    box = initial_orders.box_of((4, 6), (2, 3))
    assert np.bincount(box).tolist() == [6, 6, 6, 6]
    assert box.reshape(6, 4)[:3, :2].tolist() == [[0, 0]] * 3


def test_runs_go_along_each_axis_from_one_side_or_to_and_fro() -> None:
    found = [run.tolist() for run in initial_orders.runs((2, 3))]
    assert [0, 1, 2, 3, 4, 5] in found
    assert [0, 1, 3, 2, 4, 5] in found
    assert [0, 2, 4, 5, 3, 1] in found
    assert all(sorted(run) == list(range(6)) for run in found)


def test_domains_are_chosen_to_end_runs() -> None:
    places = exchanging.places([[5, 3, 4, 4, 6, 2]], (1.0, 2.0, 3.0))
    sizes = exchanging.sizes_in(places, initial_orders.packed(places, 8))
    ends = np.cumsum(sizes)
    assert {8, 16, 24} <= {*ends.tolist()}


def test_nearest_sum_of_domain_sizes_is_taken() -> None:
    """No domains add up to a multiple of 8 ranks, so all three are used."""
    places = exchanging.places([[7, 7, 7]], (1.0, 2.0, 3.0))
    assert exchanging.sizes_in(places, initial_orders.packed(places, 8)) == [7, 7, 7]


def test_order_of_places_depends_on_their_structure_only() -> None:
    places = exchanging.places([[2, 3], [4, 1, 1]], (1.0, 2.0, 3.0))
    renamed, _ = exchanging.renamed(places, seed=3)
    one, other = places.canonical()[0], renamed.canonical()[0]
    assert np.array_equal(one.domains, other.domains)


@pytest.mark.parametrize(
    ("shape", "leaves"),
    [((8, 12, 8), [[12] * 8]), ((8, 32, 12), [[16] * 24]), ((8, 8, 16), [[8] * 8] * 2)],
)
def test_where_rings_fill_domains_the_best_there_is_is_found(
    shape: tuple[int, int, int], leaves: list[list[int]]
) -> None:
    """Every domain holds whole boxes, so that what must leave them can be counted."""
    job = exchanging.job(shape)
    places = exchanging.nodes_of(leaves, 8, DISTANCE)
    scrambled = exchanging.renamed(places, seed=1)[0]
    found = mapper.assign(job, scrambled, budget=BUDGET)
    assert cost(job, scrambled, found) <= exchanging.best_boxed(job, places) * (1 + 1e-12)


def test_what_is_planted_into_unequal_domains_is_found() -> None:
    """Rings of 12 nodes in leaves that add up to 12 each: no ring need be cut more than once a
    leaf."""
    job = exchanging.job((8, 12, 4))
    places = exchanging.nodes_of([[5, 7, 8, 4], [6, 6, 3, 9]], 8, DISTANCE)
    scrambled = exchanging.renamed(places, seed=2)[0]
    found = mapper.assign(job, scrambled, budget=BUDGET)
    in_order = cost(job, places, np.arange(job.ranks))
    assert cost(job, scrambled, found) <= in_order


def test_the_same_input_gives_the_same_mapping() -> None:
    job = exchanging.job((4, 6, 4))
    places = exchanging.nodes_of([[3, 2, 5], [1, 1]], 8, DISTANCE)
    one, other = (mapper.assign(job, places, budget=BUDGET) for _ in range(2))
    assert np.array_equal(one, other)


def test_distances_that_shrink_outwards_are_refused() -> None:
    with pytest.raises(ValueError, match="must not shrink"):
        Places(np.zeros((1, 2), dtype=np.int64), (2.0, 1.0))


def test_job_without_traffic_is_placed_anywhere() -> None:
    nothing = np.array([], dtype=np.int64)
    job = TrafficMatrix((4,), nothing, nothing, np.array([]))
    found = mapper.assign(job, exchanging.nodes_of([[2]], 2, (1.0, 2.0, 3.0, 4.0)), budget=100)
    assert sorted(found.tolist()) == [0, 1, 2, 3]


def test_job_needs_as_many_places_as_ranks() -> None:
    with pytest.raises(ValueError, match="12 ranks need as many places, not 16"):
        mapper.assign(exchanging.job((4, 3, 1)), exchanging.nodes_of([[2]], 8, DISTANCE))
