"""Planning one job stays within its work budget, and its Placement has `overBudget`."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest

from fixtures import job, node
from fixtures import seen as profiles
from railwright_operator.write import placement_score
from railwright_scheduler import cluster as clusters
from railwright_scheduler.budget import PLANNING_WORK, TRAFFIC_WORK, OverBudgetError, WorkBudget
from railwright_scheduler.cost import transformer
from railwright_scheduler.mapping import gang_mapping
from railwright_scheduler.mapping.evaluation import OrderEvaluator
from railwright_scheduler.mapping.request import OrderRequest, build_request
from railwright_scheduler.model.placement_score import PlacementScore
from railwright_scheduler.model.snapshot import SendingJob, Snapshot
from railwright_scheduler.model.workload import (
    Framework,
    Parallelism,
    Precision,
    Recipe,
    Transformer,
    Workload,
)
from railwright_scheduler.policy import link_traffic
from railwright_scheduler.policy.decide import decide
from railwright_scheduler.remembered import Key, Remembered, remembered
from railwright_topology.links import Links

GPT = Transformer(24, 4096, 32, 32, 128, 4 * 4096, 51_200)
MIXTURE = replace(GPT, experts=16_384, chosen=8)


def world(workload: Workload, *racks: int, senders: tuple[SendingJob, ...] = ()) -> Snapshot:
    nodes = tuple(
        node(f"n{rack}-{at:04d}", f"r{rack}", machine="DGX A100")
        for rack, size in enumerate(racks)
        for at in range(size)
    )
    split = workload.split
    asked = job(
        "a",
        replicas=split.ranks // 8,
        ranks_per_pod=8,
        workload=workload,
    )
    links = (Links(8.0),)
    return Snapshot(("rack",), nodes, ("default",), (asked,), links=links, senders=senders)


def dense(
    split: Parallelism, *, sequence: int = 2048, framework: Framework = Framework.MEGATRON
) -> Workload:
    return Workload(GPT, split, Recipe(sequence, 1, 4 * split.data, framework=framework))


class Recorded(WorkBudget):
    """Every budget that was made in a test."""

    made: list[WorkBudget]

    def __init__(self, limit: int = PLANNING_WORK) -> None:
        super().__init__(limit)
        self.made.append(self)


@pytest.fixture
def budgets(monkeypatch: pytest.MonkeyPatch) -> list[WorkBudget]:
    Recorded.made = []
    monkeypatch.setattr(gang_mapping, "WorkBudget", Recorded)
    return Recorded.made


def test_budget_refuses_what_is_more_than_left() -> None:
    work = WorkBudget(10)
    work.spend(6)
    with pytest.raises(OverBudgetError):
        work.spend(5)
    work.spend(4)
    assert work.left == 0


def test_search_leaves_work_for_its_result() -> None:
    work, found = WorkBudget(100), 0
    with work.search():
        for _ in range(1_000):
            work.spend(7)
            found += 1
    assert (found, work.spent, work.is_cut) == (11, 77, True)
    work.spend(23)


def test_job_over_budget_gets_the_network_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gang_mapping, "WorkBudget", lambda: WorkBudget(1_000))
    (found,) = decide(world(dense(Parallelism(tensor=8, pipeline=2, data=4)), 4, 4)).admitted
    assert list(found.nodes) == sorted(found.nodes)
    assert found.score == PlacementScore((), truncated="WorkBudgetExceeded")
    assert placement_score.render(found.score)["truncated"] == "WorkBudgetExceeded"
    assert placement_score.parse(placement_score.render(found.score)) == found.score


def test_search_cut_short_keeps_the_best_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it begins with is found with a part of what the whole search takes."""
    split = Parallelism(tensor=8, pipeline=4, data=8)
    asked = dense(split, framework=Framework.MEGATRON_PIPELINE_FIRST)
    monkeypatch.setattr(gang_mapping, "WorkBudget", lambda: WorkBudget(80_000_000))
    (found,) = decide(world(asked, 8, 8, 8, 8)).admitted
    assert found.score is not None
    assert found.score.truncated
    (crossing,) = found.score.crossing
    assert crossing.placed < crossing.network_order


def test_kernels_of_a_layer_are_counted_not_listed() -> None:
    """As many experts or pieces as the schema allows take no more kernels to look at."""
    cut = Recipe(2048, 1, 1, sequence_parallel=True, overlap_tensor=True)
    layers = (
        transformer.layer(MIXTURE, Parallelism(), replace(cut, precision=Precision.FP8)),
        transformer.layer(GPT, Parallelism(tensor=1 << 20), cut),
    )
    for layer in layers:
        passes = layer.forward, layer.backward
        assert max(len(each.products) + len(each.repeated) for each in passes) <= 20


def test_every_expert_of_the_schema_is_within_budget(budgets: list[WorkBudget]) -> None:
    recipe = Recipe(2048, 1, 256, sequence_parallel=True)
    asked = Workload(MIXTURE, Parallelism(pipeline=2, data=64), recipe)
    (found,) = decide(world(asked, 8, 8)).admitted
    assert found.score is not None
    assert not found.score.truncated
    assert 0 < budgets[0].spent < PLANNING_WORK // 4


def doubling() -> tuple[Remembered[[int], int], list[int]]:
    """A function whose results are kept, each for 30 units of work; and its calls."""
    calls: list[int] = []

    @remembered(1_000, lambda number: Key(number, 100))
    def doubled(work: WorkBudget, number: int) -> int:
        calls.append(number)
        work.spend(30)
        return 2 * number

    return doubled, calls


def test_results_are_kept_with_what_they_cost() -> None:
    doubled, calls = doubling()
    for limit, expected in ((100, 70), (100, 70), (50, 20)):
        work = WorkBudget(limit)
        assert doubled(work, 4) == 8
        assert work.left == expected
    for _ in range(2):
        with pytest.raises(OverBudgetError):
            doubled(WorkBudget(20), 4)
    # Once for each budget: those that were not enough are kept as well.
    assert calls == [4, 4, 4]


def test_new_results_are_spent_from_the_budget_of_new_ones() -> None:
    doubled, calls = doubling()
    new = WorkBudget(100)
    assert [doubled.within(new, WorkBudget(60), number) for number in (1, 2, 1)] == [2, 4, 2]
    assert new.left == 40
    with pytest.raises(OverBudgetError):
        doubled.within(new, WorkBudget(60), 3)
    assert calls == [1, 2]
    # It was refused, which is no result.
    assert doubled.within(WorkBudget(60), WorkBudget(60), 3) == 6


def test_results_are_bounded_by_bytes() -> None:
    calls = []

    @remembered(1_000, lambda number: Key(number, 400))
    def counted(work: WorkBudget, number: int) -> int:
        calls.append(number)
        return work.limit + number

    for number in (1, 2, 1, 3, 1, 2):
        counted(WorkBudget(1), number)
    # Two fit; the least recently used one leaves.
    assert calls == [1, 2, 3, 2]


def test_size_of_a_question_is_not_underestimated() -> None:
    asked = world(dense(Parallelism(tensor=8, pipeline=25, data=16)), *[20] * 20)
    floor = clusters.of(asked)
    request = build_request(asked.jobs[0].roles[0], floor, np.arange(400), budget=0)
    tuples = [request.stands, *(getattr(tier, name) for tier in request.tiers for name in TIER)]
    assert sum(map(_size, tuples)) < request.key.size


TIER = ("domains", "capacity", "left", "reduces")


def _size(values: tuple[object, ...]) -> int:
    return sys.getsizeof(values) + sum(map(sys.getsizeof, values))


def test_recorded_groups_are_no_part_of_a_key() -> None:
    """They may be megabytes, and would be compared for each job in each cycle."""
    derived = dense(Parallelism(tensor=8, pipeline=2, data=4))
    seen = profiles.profile(derived)
    plain, other = (
        OrderRequest(replace(derived, profile=each), 8, 8, 1, (), (), (), (), 0)
        for each in (seen, replace(seen, kinds=seen.kinds[:1]))
    )
    again = replace(plain, workload=replace(derived, profile=profiles.profile(derived)))
    assert plain.key == again.key
    assert plain.key != other.key
    assert str(seen.kinds[0].groups[0]) not in str(plain.key)


def test_running_job_costs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it sends is computed in the first cycle, also if that is too much work."""
    made: list[int] = []

    def counted(request: OrderRequest, work: WorkBudget) -> OrderEvaluator:
        made.append(request.nodes)
        return OrderEvaluator(request, work)

    monkeypatch.setattr(link_traffic, "OrderEvaluator", counted)
    names = tuple(f"n{rack}-{at:04d}" for rack in (0, 1) for at in range(16))
    asked = dense(Parallelism(tensor=8, pipeline=2, data=2))
    light = SendingJob(
        dense(Parallelism(tensor=8, data=4), sequence=4096), 8, names[:4], job_uid="light"
    )
    heavy = SendingJob(dense(Parallelism(data=256), sequence=512), 8, names, job_uid="heavy")
    monkeypatch.setattr(link_traffic, "WORK_A_NODE", -600_000)
    for _ in range(3):
        decide(world(asked, 16, 16, senders=(light, heavy)))
    assert sorted(made) == [4, 32]


class Costly:
    """Spends this work for each gang, and has no traffic."""

    work = 0
    made: list[OrderRequest]

    def __init__(self, request: OrderRequest, work: WorkBudget) -> None:
        work.spend(self.work)
        self.made.append(request)

    def uses(self, order: np.ndarray) -> tuple[()]:
        return ()


@pytest.fixture
def reckoned(monkeypatch: pytest.MonkeyPatch) -> list[OrderRequest]:
    """The gangs whose traffic was computed."""
    Costly.made = []
    monkeypatch.setattr(link_traffic, "OrderEvaluator", Costly)
    return Costly.made


def runs(count: int, nodes: int, *, sequence: int, name: str = "") -> tuple[SendingJob, ...]:
    """Jobs that differ, on the same nodes; no test has the sequences of another."""
    names = tuple(f"n0-{at:04d}" for at in range(nodes))
    split = Parallelism(tensor=8, data=nodes)
    return tuple(
        SendingJob(dense(split, sequence=sequence + at), 8, names, f"{name}{at:04d}")
        for at in range(count)
    )


ASKED = dense(Parallelism(tensor=8, pipeline=2, data=2))


def test_traffic_of_all_jobs_is_within_one_budget(
    reckoned: list[OrderRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that it does not suffice for follow in the next decisions."""
    monkeypatch.setattr(Costly, "work", 10_000_000)
    asked = world(ASKED, 8, 8, senders=runs(200, 2, sequence=100_000))
    counts = []
    for _ in range(4):
        decide(asked)
        counts.append(len(reckoned))
        reckoned.clear()
    assert max(counts) * Costly.work <= TRAFFIC_WORK
    assert sum(counts) == 200
    assert counts[-1] == 0


def test_largest_gangs_are_reckoned_first_in_any_order(
    reckoned: list[OrderRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Costly, "work", 20_000_000)
    found = []
    for sequence, step in ((200_000, 1), (201_000, -1)):
        small = runs(60, 2, sequence=sequence, name="small")
        large = runs(9, 4, sequence=sequence, name="large")
        decide(world(ASKED, 8, 8, senders=(*small, *large)[::step]))
        found.append([(its.nodes, its.workload.recipe.sequence - sequence) for its in reckoned])
        reckoned.clear()
    first, second = found
    assert first == second == sorted(first, key=lambda its: (-its[0], its[1]))
    assert 9 < len(first) < 69


def test_repeated_traffic_request_is_cached(reckoned: list[OrderRequest]) -> None:
    """If not all results fit in the cache, the same ones are requested each time."""
    asked = world(ASKED, 512, 8, senders=runs(700, 512, sequence=300_000))
    decide(asked)
    assert 350 < len(reckoned) < 700
    reckoned.clear()
    decide(asked)
    assert not reckoned
