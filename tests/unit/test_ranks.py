"""The order of ranks on nodes, for jobs with a workload."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fixtures import job, node
from fixtures import seen as profiles
from fixtures.jobs import with_role
from railwright_scheduler import cluster
from railwright_scheduler.cost import step
from railwright_scheduler.cost.hardware import DGX_A100
from railwright_scheduler.mapping.gang_mapping import map_ranks
from railwright_scheduler.model.decisions import Admit
from railwright_scheduler.model.placement_score import PlacementScore, PredictedStep
from railwright_scheduler.model.reasons import BindingBacklog
from railwright_scheduler.model.snapshot import Job, Node, Snapshot, TierLimit, TopologyConstraints
from railwright_scheduler.model.workload import (
    Framework,
    Parallelism,
    Precision,
    Recipe,
    Routing,
    Transformer,
    Workload,
)
from railwright_scheduler.policy import ranks
from railwright_scheduler.policy.decide import decide
from railwright_topology.links import Links

GPT = Transformer(
    layers=24,
    hidden=4096,
    heads=32,
    kv_heads=32,
    head_size=128,
    feed_forward=4 * 4096,
    vocabulary=51_200,
)
PIPELINE_FIRST = Recipe(2048, 1, 64, framework=Framework.MEGATRON_PIPELINE_FIRST)
FOUR_BY_TWO = Parallelism(tensor=8, pipeline=4, data=2)
KNOWN = "DGX A100"


def gang(split: Parallelism, recipe: Recipe = PIPELINE_FIRST, **changes: object) -> Job:
    workload = Workload(GPT, split, recipe)
    nodes = split.ranks // 8
    return job("a", replicas=nodes, ranks_per_pod=8, workload=workload, **changes)


def workload_of(asked: Job) -> Workload:
    assert asked.roles[0].workload is not None
    return asked.roles[0].workload


def of_other_devices(derived: Job, device: str) -> Job:
    """The job with a profile of large sends that was recorded on this device."""
    workload = workload_of(derived)
    taken = replace(profiles.profile(workload), devices=(device,))
    return with_role(derived, workload=replace(workload, profile=profiles.with_large_sends(taken)))


def racks(*sizes: int, machine: str = KNOWN) -> tuple[Node, ...]:
    return tuple(
        node(f"n{rack}-{at:02d}", f"r{rack}", machine=machine)
        for rack, size in enumerate(sizes)
        for at in range(size)
    )


def admitted(asked: Job, nodes: tuple[Node, ...], *, times: float = 8.0) -> Admit:
    world = Snapshot(("rack",), nodes, ("default",), (asked,), links=(Links(times),))
    return decide(world).admitted[0]


def score(found: Admit) -> PlacementScore:
    assert found.score is not None
    return found.score


def predicted(found: Admit) -> PredictedStep:
    reported = score(found).predicted
    assert reported is not None
    return reported


def test_job_without_workload_gets_network_order() -> None:
    found = admitted(job("a", replicas=8), racks(4, 4))
    assert found.score is None
    assert [*found.nodes] == sorted(found.nodes)


def test_replicas_numbered_apart_are_placed_together() -> None:
    """Stages follow each other: in the network's order each rack is a replica, and all gradients
    cross. Laid out, each rack has both replicas of two stages."""
    found = admitted(gang(FOUR_BY_TWO), racks(4, 4))
    where = [name.partition("-")[0] for name in found.nodes]
    assert where[:4] == where[4:]
    assert sorted(where) == ["n0"] * 4 + ["n1"] * 4
    (crossing,) = score(found).crossing
    assert crossing.level == "rack"
    assert crossing.placed * 5 < crossing.network_order
    reported = predicted(found)
    assert reported.machines == (KNOWN,)
    assert reported.placed_us < reported.network_order_us
    assert reported.placed_us <= reported.next_best_us


def test_profile_decides_the_order_of_ranks_and_is_named() -> None:
    """Stages were seen to send each other what nobody would derive: they come to stand together."""
    derived = gang(FOUR_BY_TWO)
    derives = workload_of(derived)
    seen = profiles.profile(derives)
    for reported, together in ((seen, [0, 4]), (profiles.with_large_sends(seen), [0, 1, 2, 3])):
        its = with_role(derived, workload=replace(derives, profile=reported))
        found = admitted(its, racks(4, 4))
        assert score(found).measured
        where = [name.partition("-")[0] for name in found.nodes]
        assert len({where[rank] for rank in together}) == 1
    assert not score(admitted(derived, racks(4, 4))).measured


def test_profile_of_other_devices_is_set_aside_and_named() -> None:
    """Derived traffic is used, and the score names the devices."""
    seen = of_other_devices(derived := gang(FOUR_BY_TWO), "NVIDIA A100-SXM4-80GB")
    nodes = racks(4, 4)
    for labelled, different in (
        ("NVIDIA-A100-SXM4-80GB", ()),
        ("NVIDIA-A100-SXM4-80GB-SHARED", ()),
        ("", ()),
        ("NVIDIA-H100-80GB-HBM3", ("NVIDIA-H100-80GB-HBM3",)),
    ):
        found = admitted(seen, tuple(replace(each, device=labelled) for each in nodes))
        assert score(found).other_devices == different
        assert score(found).measured is not bool(different)
        if different:
            assert found.nodes == admitted(derived, nodes).nodes


def test_nodes_are_not_chosen_for_what_was_not_recorded_of_them() -> None:
    """A recorded profile is longer than a derived one, which is all that other devices have."""
    seen = of_other_devices(gang(FOUR_BY_TWO), "A100")
    ours, others = racks(8, 8)[:8], racks(8, 8)[8:]
    nodes = tuple(replace(each, device="A100") for each in ours)
    nodes += tuple(replace(each, device="other") for each in others)
    floor = cluster.of(Snapshot(("rack",), nodes, ("default",), (seen,), links=(Links(8.0),)))
    asked = ranks.mapping_request(seen.roles[0], floor, [np.arange(8), np.arange(8, 16)], ())
    assert asked is not None
    found = map_ranks(asked)
    assert found is not None
    assert found.choice == 0
    assert asked.choices[found.choice].mapped.workload.profile is not None


def test_step_without_contention_is_predicted_exactly() -> None:
    found = admitted(gang(FOUR_BY_TWO), racks(8))
    assert predicted(found).placed_us == predicted(found).network_order_us
    uncrowded = step.predict(GPT, FOUR_BY_TWO, PIPELINE_FIRST, DGX_A100)
    assert predicted(found).placed_us == round(uncrowded.total * 1e6)
    axes = ("tensor", "pipeline", "data")
    sent_s = sum(seconds for name, seconds in uncrowded.parts if name in axes)
    assert predicted(found).exposed_us == round(sent_s * 1e6) > 0
    apart = admitted(gang(FOUR_BY_TWO), racks(4, 4), times=1.0)
    assert predicted(apart).placed_us == predicted(found).placed_us


def test_unknown_machines_are_mapped_by_bytes_alone() -> None:
    found = admitted(gang(FOUR_BY_TWO), racks(4, 4, machine="abacus"))
    assert score(found).predicted is None
    assert found.nodes == admitted(gang(FOUR_BY_TWO), racks(4, 4)).nodes


def test_mixed_gang_is_as_fast_as_neither_kind_alone() -> None:
    """Its predicted step time lies between those of both kinds."""
    newer = racks(4, 4, machine="DGX H100")
    found = admitted(gang(FOUR_BY_TWO), (*racks(4, 4)[:4], *newer[4:]))
    assert predicted(found).machines == (KNOWN, "DGX H100")
    fast, slow = (predicted(admitted(gang(FOUR_BY_TWO), each)) for each in (newer, racks(4, 4)))
    assert fast.placed_us < predicted(found).placed_us < slow.placed_us


def test_unsupported_precision_has_no_prediction() -> None:
    fp8 = replace(PIPELINE_FIRST, precision=Precision.FP8)
    found = admitted(gang(FOUR_BY_TWO, fp8), racks(4, 4))
    assert score(found).predicted is None


def test_ranks_follow_nodes_without_known_levels() -> None:
    bare = tuple(replace(each, domains=()) for each in racks(8))
    (found,) = decide(Snapshot((), bare, ("default",), (gang(FOUR_BY_TWO),))).admitted
    assert [*found.nodes] == sorted(found.nodes)
    assert score(found).crossing == ()


def test_whole_rings_in_each_rack_are_worth_larger_racks() -> None:
    """Seven and nine nodes are the smallest two racks that suffice, but tear a ring of eight."""
    rings = gang(
        Parallelism(tensor=8, pipeline=2, data=8),
        replace(PIPELINE_FIRST, framework=Framework.MEGATRON),
    )
    found = admitted(rings, racks(9, 7, 12, 11))
    where = [name.partition("-")[0] for name in found.nodes]
    assert len({*where[:8]}) == len({*where[8:]}) == 1
    assert found.spans == (2,)


def test_segments_stay_together_however_ranks_are_laid_out() -> None:
    split = Parallelism(tensor=8, pipeline=4, data=4)
    asked = gang(split, constraints=TopologyConstraints(segments=(TierLimit("rack", 2),)))
    found = admitted(asked, racks(3, 5, 2, 7, 3))
    where = [name.partition("-")[0] for name in found.nodes]
    assert all(one == other for one, other in zip(where[::2], where[1::2], strict=True))
    assert len({*found.nodes}) == 16


@pytest.mark.parametrize("per_node", [1, 4, 8])
def test_any_number_of_ranks_a_node_is_laid_out(per_node: int) -> None:
    split = Parallelism(tensor=4, pipeline=2, data=4)
    workload = Workload(GPT, split, PIPELINE_FIRST)
    asked = job("a", replicas=32 // per_node, ranks_per_pod=per_node, workload=workload)
    found = admitted(asked, racks(16, 16))
    assert len({*found.nodes}) == 32 // per_node
    assert score(found).crossing[0].placed <= score(found).crossing[0].network_order


def test_costly_gangs_are_mapped_one_cycle_after_another() -> None:
    split = Parallelism(tensor=8, pipeline=16, data=25)
    large = [replace(gang(split), uid=f"large-{at}", submitted_s=at) for at in range(2)]
    small = replace(job("small"), submitted_s=9)
    nodes = racks(*[16] * 60)
    world = Snapshot(("rack",), nodes, ("default",), (*large, small), links=(Links(2.0),))
    decisions = decide(world)
    assert [each.job_uid for each in decisions.admitted] == ["large-0"]
    assert {each.job_uid: each.reason for each in decisions.waiting} == {
        "large-1": BindingBacklog(need=400, pods=400),
        "small": BindingBacklog(need=1, pods=400),
    }
    silent = [with_role(each, workload=None) for each in large]
    assert len(decide(replace(world, jobs=(*silent, small))).admitted) == 3


def test_equal_traffic_to_all_keeps_network_order() -> None:
    """However many nodes it is: there would be millions of pairs."""
    moe_model = replace(GPT, experts=4096, chosen=8, gated=True)
    split = Parallelism(data=4096, expert=4096)
    workload = Workload(moe_model, split, Recipe(2048, 1, 4096))
    asked = job("a", replicas=512, ranks_per_pod=8, workload=workload)
    found = admitted(asked, racks(*[16] * 32))
    assert [*found.nodes] == sorted(found.nodes)


def test_replacement_node_takes_the_ranks_of_the_lost_one() -> None:
    nodes = racks(4, 5)
    first = admitted(gang(FOUR_BY_TWO), nodes)
    assert score(first).moved == 0
    gone = first.nodes[2]
    left = tuple(each for each in nodes if each.name != gone)
    again = admitted(gang(FOUR_BY_TWO, before=first.nodes), left)
    (new,) = {*again.nodes} - {*first.nodes}
    assert again.nodes == tuple(new if name == gone else name for name in first.nodes)
    assert score(again).moved == 1


def test_ranks_move_only_where_it_pays_off() -> None:
    """They were placed when nothing was known of uplinks: each rack a replica."""
    nodes = racks(4, 4)
    asked = gang(FOUR_BY_TWO, before=tuple(each.name for each in nodes))
    moved = admitted(asked, nodes, times=64.0)
    assert score(moved).moved == 4
    assert predicted(moved).placed_us < 0.99 * predicted(moved).network_order_us
    stayed = admitted(asked, nodes, times=1.0)
    assert score(stayed).moved == 0
    assert stayed.nodes == asked.roles[0].before


@pytest.mark.parametrize("lost", range(8))
def test_node_of_another_rack_goes_where_ring_leaves_rack(lost: int) -> None:
    """In the middle of a rack's part of the ring all would wait for the uplinks; one other rank
    moves at most, and no step is longer than before."""
    nodes = racks(4, 4, 1)
    ring = gang(Parallelism(tensor=8, data=8), replace(PIPELINE_FIRST, global_batch=8))
    first = admitted(ring, nodes, times=4.0)
    left = tuple(each for each in nodes if each.name != first.nodes[lost])
    again = admitted(with_role(ring, before=first.nodes), left, times=4.0)
    assert score(again).moved <= 2
    assert predicted(again).placed_us == predicted(first).placed_us


def test_of_equal_nodes_a_job_gets_those_it_had() -> None:
    had = ("n3-00", "n3-01")
    assert admitted(job("a", replicas=2), racks(2, 2, 2, 2)).nodes == ("n0-00", "n0-01")
    assert admitted(job("a", replicas=2, before=had), racks(2, 2, 2, 2)).nodes == had
    assert admitted(job("a", replicas=2, before=had), racks(2, 2, 3)).nodes == ("n0-00", "n0-01")


@pytest.mark.parametrize(("chosen", "nodes"), [(8, 1), (8, 4), (3, 2), (8, 64)])
def test_more_experts_per_token_than_nodes_hold_is_planned(chosen: int, nodes: int) -> None:
    few = replace(GPT, experts=8, chosen=chosen, chosen_nodes=nodes, gated=True)
    recipe = Recipe(2048, 1, 16, forwarded=True)
    workload = Workload(few, Parallelism(data=16, expert=8), recipe)
    asked = job("a", replicas=16, ranks_per_pod=1, workload=workload)
    assert len(admitted(asked, racks(8, 8)).nodes) == 16


def test_very_many_experts_are_counted_at_once() -> None:
    assert Routing(experts=2**20, chosen=2**19).reached(4, 8) == pytest.approx((4, 32))
    assert Routing(experts=64, chosen=8).reached(8, 8)[1] == pytest.approx(64 * (1 - 56 / 64))


def test_unrepresentable_number_is_reported_as_the_largest() -> None:
    found = admitted(gang(FOUR_BY_TWO, Recipe(2**40, 1, 2**38)), racks(4, 4))
    assert score(found).crossing[0].network_order == 2**53


def test_more_ranks_than_devices_are_not_predicted() -> None:
    workload = Workload(GPT, Parallelism(tensor=16, pipeline=4, data=2), PIPELINE_FIRST)
    asked = job("a", replicas=8, ranks_per_pod=16, workload=workload)
    assert score(admitted(asked, racks(4, 4))).predicted is None


def test_a_rack_with_fewer_cables_than_others_is_waited_for() -> None:
    world = Snapshot(("rack",), racks(4, 4), ("default",), (gang(FOUR_BY_TWO),), (Links(),))
    (even,) = decide(world).admitted
    (reported,) = decide(replace(world, links=(Links(leaving={"r0": 4.0, "r1": 4.0}),))).admitted
    assert reported == even
    (found,) = decide(replace(world, links=(Links(leaving={"r0": 4.0, "r1": 0.5}),))).admitted
    assert predicted(found).placed_us > predicted(even).placed_us


def test_racks_with_wider_uplinks_win_if_a_step_waits_for_them() -> None:
    """The predicted step is shorter than with the rack of the narrow uplink."""
    rings = gang(Parallelism(tensor=8, data=8))
    links = (Links(leaving={"n0": 4.0, "n1": 0.25, "n2": 4.0}),)
    world = Snapshot(("rack",), named(4, 4, 4), ("default",), (rings,), links)
    (found,) = decide(world).admitted
    assert {name[:2] for name in found.nodes} == {"n0", "n2"}
    (full,) = decide(replace(world, nodes=named(4, 4))).admitted
    assert predicted(found).placed_us < predicted(full).placed_us


def test_ranks_that_are_laid_out_anew_stay_where_racks_are_equal() -> None:
    """A stage of the middle leaves the rack that got narrow; only the last one's have to move."""
    stages = gang(FOUR_BY_TWO)
    world = Snapshot(("rack",), named(2, 2, 2, 2), ("default",), (stages,), (Links(),))
    (first,) = decide(world).admitted
    again = with_role(stages, before=first.nodes)
    narrow = (Links(leaving={first.nodes[1][:2]: 0.1}),)
    (found,) = decide(replace(world, jobs=(again,), links=narrow)).admitted
    assert score(found).moved == 4
    (anew,) = decide(replace(world, links=narrow)).admitted
    assert predicted(found).placed_us == predicted(anew).placed_us


def named(*sizes: int) -> tuple[Node, ...]:
    """Racks that are called as their nodes begin."""
    return tuple(replace(each, domains=(each.name[:2],)) for each in racks(*sizes))


def test_a_rack_of_which_one_node_joined_lets_out_what_it_sends() -> None:
    alone = predicted(admitted(gang(FOUR_BY_TWO), racks(7, 1)))
    assert alone.placed_us < 1.5 * predicted(admitted(gang(FOUR_BY_TWO), racks(8))).placed_us
