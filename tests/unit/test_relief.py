"""Uplinks that a step waits for are relieved by exchanging nodes, and no step becomes longer."""

from __future__ import annotations

import numpy as np

from railwright_scheduler.communication.traffic_matrix import TrafficMatrix
from railwright_scheduler.cost import contention, contention_refinement
from railwright_scheduler.cost.contention import Uplinks
from railwright_scheduler.cost.contention_refinement import WeightedTraffic

RACKS = Uplinks(np.repeat([0, 1, 2, 3], 4), np.ones(4), 4.0)


def ring(*ranks: int, weight: float = 1.0, of: int = 16) -> TrafficMatrix:
    ends = np.array([ranks, [*ranks[1:], ranks[0]]])
    return TrafficMatrix((of,), ends.min(axis=0), ends.max(axis=0), np.full(len(ranks), weight))


def crowd(sent: TrafficMatrix, order: np.ndarray) -> float:
    return contention.contention(sent, (RACKS.of(order),))


def test_a_ring_that_goes_to_and_fro_is_straightened() -> None:
    whole = ring(*range(16))
    order = np.arange(16)
    order[[1, 6, 9, 14]] = order[[6, 1, 14, 9]]
    assert crowd(whole, order) == 3.0
    found = contention_refinement.refine([WeightedTraffic(whole, 1.0)], (RACKS,), order)
    assert sorted(found.tolist()) == [*range(16)]
    assert crowd(whole, found) == 1.0


def test_what_is_worth_more_is_relieved_first() -> None:
    """One ring goes along what the other goes across: only one of them can stay inside."""
    grid = np.arange(16).reshape(4, 4)
    rows, columns = (
        TrafficMatrix(
            (16,),
            np.concatenate([ring(*line).a for line in lines]),
            np.concatenate([ring(*line).b for line in lines]),
            np.ones(16),
        )
        for lines in (grid.tolist(), grid.T.tolist())
    )
    in_rows = np.arange(16)
    found = contention_refinement.refine(
        [WeightedTraffic(rows, 1.0), WeightedTraffic(columns, 1e-6)], (RACKS,), in_rows
    )
    assert crowd(rows, found) == 1.0
    found = contention_refinement.refine(
        [WeightedTraffic(rows, 1e-6), WeightedTraffic(columns, 1.0)], (RACKS,), in_rows
    )
    assert crowd(columns, found) < crowd(columns, in_rows)


def test_no_rank_moves_without_contention() -> None:
    wide = Uplinks(RACKS.domains, np.full(4, 4.0), 1.0)
    order = np.arange(16)[::-1].copy()
    found = contention_refinement.refine([WeightedTraffic(ring(*range(16)), 1.0)], (wide,), order)
    assert found.tolist() == order.tolist()


def test_the_same_is_relieved_in_the_same_way() -> None:
    whole, spread = ring(*range(16)), np.arange(16).reshape(4, 4).T.ravel()
    assert crowd(whole, spread) == 4.0
    one, other = (
        contention_refinement.refine([WeightedTraffic(whole, 1.0)], (RACKS,), spread)
        for _ in range(2)
    )
    assert one.tolist() == other.tolist()
    assert crowd(whole, one) < 4.0
