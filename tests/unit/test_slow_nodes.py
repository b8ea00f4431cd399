"""Which nodes a gang gets where some are slow or of another kind, and which ranks those get."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fixtures import job, node
from railwright_scheduler.model.decisions import Admit
from railwright_scheduler.model.placement_score import PredictedStep
from railwright_scheduler.model.snapshot import Job, Node, Snapshot, TierLimit, TopologyConstraints
from railwright_scheduler.model.workload import (
    Framework,
    Parallelism,
    Recipe,
    Transformer,
    Workload,
)
from railwright_scheduler.policy.decide import decide
from railwright_topology.links import Links
from railwright_topology.relative_speed import RelativeSpeed

GPT = Transformer(30, 4096, 32, 32, 128, 4 * 4096, 51_200)
FOUR_BY_TWO = Parallelism(tensor=8, pipeline=4, data=2)
RECIPE = Recipe(2048, 1, 64, framework=Framework.MEGATRON_PIPELINE_FIRST)
KNOWN, OLDER = "DGX H100", "DGX A100"
SLOW = RelativeSpeed(products=0.8)


def gang(recipe: Recipe = RECIPE, split: Parallelism = FOUR_BY_TWO, **changes: object) -> Job:
    nodes = split.ranks // 8
    workload = Workload(GPT, split, recipe)
    return job("a", replicas=nodes, ranks_per_pod=8, workload=workload, **changes)


def racks(
    *sizes: int, slow: tuple[str, ...] = (), relative_speed: RelativeSpeed = SLOW
) -> tuple[Node, ...]:
    nodes = (
        node(f"n{rack}-{at}", f"r{rack}", machine=KNOWN)
        for rack, size in enumerate(sizes)
        for at in range(size)
    )
    return tuple(
        replace(each, relative_speed=relative_speed) if each.name in slow else each
        for each in nodes
    )


def admitted(asked: Job, nodes: tuple[Node, ...], *, times: float = 1.0) -> Admit:
    world = Snapshot(("rack",), nodes, ("default",), (asked,), links=(Links(times),))
    (found,) = decide(world).admitted
    return found


def predicted(found: Admit) -> PredictedStep:
    assert found.score is not None
    assert found.score.predicted is not None
    return found.score.predicted


@pytest.mark.parametrize("framework", [Framework.DEEPSPEED, Framework.MEGATRON_PIPELINE_FIRST])
def test_a_slow_node_gets_the_stage_that_has_time_left(framework: Framework) -> None:
    """Of 30 layers DeepSpeed gives the third and the last stage seven instead of eight, Megatron is
    taken to give the first one seven. Stages follow each other in Megatron's numbers, replicas in
    DeepSpeed's."""
    asked = gang(replace(RECIPE, framework=framework))
    relative_speed = RelativeSpeed(products=0.85, memory=0.85)
    found = admitted(asked, racks(8, slow=("n0-7",), relative_speed=relative_speed))
    expected = (4, 5) if framework is Framework.DEEPSPEED else (0, 4)
    assert found.nodes.index("n0-7") in expected
    reported = predicted(found)
    assert reported.placed_us < reported.network_order_us
    even = predicted(admitted(asked, racks(8)))
    assert reported.slow_us == reported.placed_us - even.placed_us
    assert reported.slow_us < 0.02 * reported.placed_us
    assert even.slow_us == 0


def test_slow_nodes_share_a_stage() -> None:
    found = admitted(
        gang(), racks(8, slow=("n0-1", "n0-2"), relative_speed=RelativeSpeed(products=0.5))
    )
    ranks = sorted(found.nodes.index(name) for name in ("n0-1", "n0-2"))
    assert ranks[1] - ranks[0] == 4
    assert ranks[0] < 3


def test_many_nodes_are_laid_out_by_their_stages() -> None:
    """Sixteen stages of eight nodes in racks of eight: none of the slow ones, of which each rack
    has one, is on the critical path of more stages than they fill."""
    split = Parallelism(tensor=8, pipeline=16, data=8)
    slow = tuple(f"n{rack}-3" for rack in range(16))
    found = admitted(
        gang(split=split), racks(*[8] * 16, slow=slow, relative_speed=RelativeSpeed(products=0.5))
    )
    stages = {found.nodes.index(name) % 16 for name in slow}
    assert len(stages) == 2
    assert 15 not in stages


def test_slow_nodes_swap_within_rack_and_keep_segments() -> None:
    """Both nodes of each segment stay in one rack."""
    constraints = TopologyConstraints(segments=(TierLimit("rack", 2),))
    nodes = racks(3, 5, 4, slow=("n1-0", "n0-0"), relative_speed=RelativeSpeed(products=0.9))
    found = admitted(gang(constraints=constraints), nodes)
    where = [name.partition("-")[0] for name in found.nodes]
    assert all(one == other for one, other in zip(where[::2], where[1::2], strict=True))


@pytest.mark.parametrize("with_workload", [True, False])
def test_of_two_racks_that_without_a_slow_node_is_taken(with_workload: bool) -> None:
    """Whether the job says what it does or not, and even if the other is just large enough."""
    asked = gang() if with_workload else job("a", replicas=8)
    for sizes in ((8, 8), (8, 9), (8, 20)):
        found = admitted(asked, racks(*sizes, slow=("n0-5",)))
        assert {name.partition("-")[0] for name in found.nodes} == {"n1"}


def test_of_two_racks_the_one_with_fewer_slow_nodes_is_taken() -> None:
    nodes = racks(8, 9, slow=("n0-5", "n0-6", "n1-0", "n1-1"))
    found = admitted(job("a", replicas=8), nodes)
    assert len({*found.nodes} & {"n1-0", "n1-1"}) == 1


def test_within_a_rack_the_slowest_are_left() -> None:
    nodes = racks(6, slow=("n0-0", "n0-3"))
    nodes = tuple(
        replace(each, relative_speed=RelativeSpeed(memory=0.5)) if each.name == "n0-1" else each
        for each in nodes
    )
    assert admitted(job("a", replicas=3), nodes).nodes == ("n0-2", "n0-4", "n0-5")
    assert admitted(job("a", replicas=5), nodes).nodes == ("n0-0", "n0-2", "n0-3", "n0-4", "n0-5")
    assert admitted(job("a", replicas=1), nodes[:3]).nodes == ("n0-2",)


def test_job_without_workload_spans_no_extra_rack() -> None:
    """It takes the rack with a slow node."""
    nodes = racks(8, 4, 4, slow=("n0-5",))
    assert admitted(job("a", replicas=8), nodes).spans == (1,)


def test_a_rack_more_is_worth_a_step_that_is_shorter_by_it() -> None:
    nodes = racks(
        8, 4, 4, slow=("n0-5", "n0-6", "n0-7"), relative_speed=RelativeSpeed(products=0.5)
    )
    assert "n0-5" not in admitted(gang(), nodes).nodes
    nodes = racks(8, 4, 4, slow=("n0-5",), relative_speed=RelativeSpeed(products=0.95))
    assert admitted(gang(), nodes).spans == (1,)


def test_nodes_without_slow_ones_are_found_among_many_degrees() -> None:
    speeds = iter([0.5, 0.6, 0.7, 0.8, 0.9])
    slow = {f"n0-{at}": RelativeSpeed(memory=next(speeds)) for at in range(5)}
    nodes = [
        replace(each, relative_speed=slow.get(each.name, each.relative_speed))
        for each in racks(8, 4, 4)
    ]
    assert not {*admitted(gang(), tuple(nodes)).nodes} & {*slow}


def test_a_node_that_became_slow_is_not_given_back_to_its_job() -> None:
    before = tuple(f"n0-{at}" for at in range(4))
    asked = job("a", replicas=4, before=before)
    assert admitted(asked, racks(6)).nodes == before
    assert admitted(asked, racks(6, slow=("n0-2",))).nodes == ("n0-0", "n0-1", "n0-3", "n0-4")


def test_slow_replacement_is_not_put_in_the_last_stage() -> None:
    """The others stay, but for the one that it changes places with."""
    nodes = racks(9, slow=("n0-8",), relative_speed=RelativeSpeed(products=0.5))
    first = admitted(gang(), nodes[:8])
    gone = first.nodes[3]
    left = tuple(each for each in nodes if each.name != gone)
    found = admitted(gang(before=first.nodes), left)
    assert found.nodes.index("n0-8") not in (3, 7)
    assert found.score is not None
    assert found.score.moved == 2


def test_heterogeneous_kinds_get_stages_of_their_own() -> None:
    """In the network's order each replica would have both kinds in every stage."""
    nodes = tuple(
        replace(each, machine=OLDER) if each.name[-1] in "13" else each for each in racks(4, 4)
    )
    found = admitted(gang(), nodes)
    reported = predicted(found)
    assert reported.machines == (OLDER, KNOWN)
    older = {found.nodes.index(f"n{rack}-{at}") % 4 for rack in (0, 1) for at in (1, 3)}
    assert len(older) == 2
    assert 3 not in older
    assert reported.placed_us < reported.network_order_us
    assert reported.slow_us == 0


def test_gang_prefers_one_kind() -> None:
    """The first eight that are free are of two kinds; eight of one stand in two racks."""
    nodes = tuple(
        replace(each, machine=OLDER) if each.name in ("n0-0", "n0-1") else each
        for each in racks(8, 6)
    )
    found = admitted(gang(), nodes)
    assert predicted(found).machines == (KNOWN,)
    assert admitted(job("a", replicas=8), nodes).spans == (1,)
