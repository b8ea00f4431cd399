"""Whatever the grid and the tree of places: a whole mapping, told at its true cost, and no worse
than the ranks in their own order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from bench import exact
from fixtures import exchanging
from fixtures.examples import examples
from railwright_scheduler.communication.traffic_matrix import TrafficMatrix
from railwright_scheduler.mapping import anneal, blocks, mapper, repartitioning
from railwright_scheduler.mapping.problem import Places, cost

BUDGET = 2_000
DISTANCE = (1.0, 10.0, 40.0, 80.0)


@st.composite
def problems(draw: st.DrawFn, *, data: int = 6, stages: int = 4) -> tuple[TrafficMatrix, Places]:
    """A job on just as many places, in nodes of equal size and leaves and pods of any."""
    tensor = draw(st.sampled_from([1, 2, 4]))
    shape = tensor, draw(st.integers(1, data)), draw(st.integers(1, stages))
    weights = [float(draw(st.integers(0, 100))) for _ in shape]
    ranks = int(np.prod(shape))
    devices = draw(st.sampled_from([size for size in (1, 2, 4) if ranks % size == 0]))
    left = ranks // devices
    pods: list[list[int]] = [[]]
    while left:
        size = draw(st.integers(1, min(5, left)))
        opens_pod = draw(st.booleans())
        if pods[-1] and opens_pod:
            pods.append([])
        pods[-1].append(size)
        left -= size
    return exchanging.job(shape, weights), exchanging.nodes_of(pods, devices, DISTANCE)


def counted(exchanges: TrafficMatrix, places: Places, where: list[int]) -> float:
    """The cost, pair by pair."""
    total = 0.0
    for a, b, weight in zip(exchanges.a, exchanges.b, exchanges.weight, strict=True):
        one, other = places.domains[:, where[a]], places.domains[:, where[b]]
        tier = next((at for at, same in enumerate(one == other) if same), len(one))
        total += float(weight) * places.distance[tier]
    return total


RINGS_OF_SIX_ON_NODES_OF_FOUR = (
    exchanging.job((1, 6, 2), (0.0, 1.0, 0.0)),
    exchanging.nodes_of([[3]], 4, DISTANCE),
)

PAIRS_IN_UNEQUAL_LEAVES = (
    exchanging.job((4, 2, 2), (92.0, 28.0, 29.0)),
    exchanging.nodes_of([[3], [1, 2], [1, 1]], 2, DISTANCE),
)
"""What no search by small steps laid out as well as could be."""


@settings(deadline=None, max_examples=examples(40))
@given(problems())
@example(RINGS_OF_SIX_ON_NODES_OF_FOUR)
def test_mapping_is_complete_and_beats_the_order(
    problem: tuple[TrafficMatrix, Places],
) -> None:
    job, places = problem
    found = mapper.assign(job, places, budget=BUDGET)
    assert sorted(found.tolist()) == list(range(places.count))
    its = cost(job, places, found)
    assert its == pytest.approx(counted(job, places, found.tolist()))
    assert its <= cost(job, places, np.lexsort(places.domains)) * (1 + 1e-12)


@settings(deadline=None, max_examples=examples(40))
@given(problems(), st.integers(0, 9))
def test_mapping_is_independent_of_domain_names(
    problem: tuple[TrafficMatrix, Places], seed: int
) -> None:
    job, places = problem
    renamed, _ = exchanging.renamed(places, seed=seed)
    one, other = (
        cost(job, each, mapper.assign(job, each, budget=BUDGET)) for each in (places, renamed)
    )
    assert one == other


@settings(deadline=None, max_examples=examples(40))
@given(problems(), st.integers(0, 9), st.sampled_from([0.1, 10.0, 10_000.0]))
def test_annealing_keeps_every_rank(
    problem: tuple[TrafficMatrix, Places], seed: int, heat: float
) -> None:
    job, places = problem
    rng = np.random.default_rng(seed)
    starts = [rng.permutation(places.count) for _ in range(3)]
    for where in anneal.annealed(job, places, starts, heat, BUDGET):
        assert sorted(where.tolist()) == list(range(places.count))


@settings(deadline=None, max_examples=examples(40))
@given(problems(), st.integers(0, 9))
def test_annealing_that_takes_only_gains_never_makes_it_worse(
    problem: tuple[TrafficMatrix, Places], seed: int
) -> None:
    """Pairs that are taken together must not undo what each of them gains."""
    job, places = problem
    start = np.random.default_rng(seed).permutation(places.count)
    (found,) = anneal.annealed(job, places, [start], 1e-9, BUDGET)
    assert cost(job, places, found) <= cost(job, places, start) * (1 + 1e-12)


@settings(deadline=None, max_examples=examples(40))
@given(problems(), st.integers(0, 9))
def test_repartitioning_keeps_every_rank_and_never_costs_more(
    problem: tuple[TrafficMatrix, Places], seed: int
) -> None:
    job, places = problem
    start = np.random.default_rng(seed).permutation(places.count)
    found = repartitioning.repartitioned(job, places, start, tries=10)
    assert sorted(found.tolist()) == list(range(places.count))
    assert cost(job, places, found) <= cost(job, places, start) * (1 + 1e-12)


@settings(deadline=None, max_examples=examples(40))
@given(problems(), st.integers(0, 3_000))
def test_whatever_the_budget_there_is_a_mapping(
    problem: tuple[TrafficMatrix, Places], budget: int
) -> None:
    job, places = problem
    found = mapper.assign(job, places, budget=budget)
    assert sorted(found.tolist()) == list(range(places.count))
    least = mapper.assign(job, places, budget=0)
    assert cost(job, places, found) <= cost(job, places, least)


@settings(deadline=None, max_examples=examples(40))
@given(problems(data=4, stages=2))
@example(PAIRS_IN_UNEQUAL_LEAVES)
def test_few_nodes_are_laid_out_as_well_as_can_be(problem: tuple[TrafficMatrix, Places]) -> None:
    """No way to put ranks together that was thought of has a better layout."""
    job, places = problem
    rooms = blocks.rooms(places, blocks.volume(job, places))
    assume(len(rooms.members) <= exact.NODES_MAX)
    found = mapper.assign(job, places)
    for its in blocks.groupings(job, rooms.members.shape[1]):
        best = its.spread(exact.mapped(its.matrix, rooms.places), rooms)
        assert cost(job, places, found) <= cost(job, places, best) * (1 + 1e-12)
