"""Gangs of several roles: who shares nodes, what topology holds for whom, and why a gang waits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fixtures import GPU, cluster, job, node
from fixtures.trained_jobs import workload_of
from railwright_scheduler.model.shortages import NotEnoughNodes
from railwright_scheduler.model.snapshot import Job, Node, Role, TierLimit, TopologyConstraints
from railwright_scheduler.model.workload import Parallelism
from railwright_scheduler.policy import gang_search, ranks
from railwright_scheduler.policy.decide import decide
from railwright_scheduler.policy.gang_search import GangSearch, Trial
from railwright_topology.miscabling import Rails

WORKERS = Role(2, {GPU: 8}, name="worker")
EVALUATOR = Role(1, {"cpu": 4_000}, name="evaluator")
RACK = TopologyConstraints(required="rack")


def _gang(*roles: Role) -> Job:
    return replace(job(), roles=roles)


def _with_cpu(name: str, *domains: str, gpus: int = 8) -> Node:
    return node(name, *domains, allocatable={GPU: gpus, "cpu": 8_000, "pods": 110})


def test_pods_of_two_roles_share_a_node() -> None:
    machines = [_with_cpu("n0"), _with_cpu("n1")]
    (admit,) = decide(cluster(*machines, jobs=(_gang(WORKERS, EVALUATOR),))).admitted
    assert set(admit.nodes[:2]) == {"n0", "n1"}
    assert admit.nodes[2] in {"n0", "n1"}


def test_gang_waits_whole_when_one_role_does_not_fit() -> None:
    machines = [node("n0"), node("n1"), *(node(f"n{at}", used={GPU: 1}) for at in (2, 3))]
    decided = decide(cluster(*machines, jobs=(_gang(WORKERS, replace(WORKERS, name="actor")),)))
    assert not decided.admitted
    (waiting,) = decided.waiting
    assert isinstance(waiting.reason, NotEnoughNodes)
    assert waiting.reason.is_beside_roles
    assert "beside the pods of its other roles" in waiting.reason.sentence()


def test_required_rack_holds_for_all_roles_together() -> None:
    """Each role fits in rack a by itself; only rack b holds both."""
    small = [_with_cpu(f"a{at}", "a") for at in range(2)]
    large = [_with_cpu(f"b{at}", "b") for at in range(4)]
    others = replace(WORKERS, name="actor")
    roles = [replace(role, constraints=RACK) for role in (WORKERS, others)]
    snapshot = cluster(*small, *large, jobs=(_gang(*roles),), levels=("rack",))
    (admit,) = decide(snapshot).admitted
    assert sorted(admit.nodes) == ["b0", "b1", "b2", "b3"]


def test_own_topology_replaces_that_of_the_job() -> None:
    """The workers' rack is full with them; the evaluator, free of it, runs in the other."""
    machines = [node("a0", "a"), node("a1", "a"), _with_cpu("b0", "b", gpus=0)]
    workers = replace(WORKERS, constraints=RACK)
    together = replace(EVALUATOR, constraints=RACK)
    apart = replace(EVALUATOR, shares_topology=False)
    shared = decide(cluster(*machines, jobs=(_gang(workers, together),), levels=("rack",)))
    assert not shared.admitted
    (admit,) = decide(cluster(*machines, jobs=(_gang(workers, apart),), levels=("rack",))).admitted
    assert admit.nodes[2] == "b0"


def test_role_with_its_own_topology_binds_no_other() -> None:
    """The evaluator fits in rack a alone, and is placed first; the others share rack b."""
    machines = [_with_cpu("a0", "a", gpus=0), *(node(f"b{at}", "b") for at in range(3))]
    shared = [Role(1, {GPU: 8}, name=f"r{at}", constraints=RACK) for at in range(3)]
    gang = _gang(*shared, replace(EVALUATOR, shares_topology=False))
    (admit,) = decide(cluster(*machines, jobs=(gang,), levels=("rack",))).admitted
    assert admit.nodes[-1] == "a0"


def test_role_takes_nodes_that_later_roles_cannot_use() -> None:
    """Two roles of two pods on 8, 3 and 3 free devices: the large node takes one pod of each."""
    machines = [node(f"n{at}", used={GPU: 8 - free}) for at, free in enumerate((8, 3, 3))]
    roles = [Role(2, {GPU: 2}, name=name) for name in ("a", "b")]
    (admit,) = decide(cluster(*machines, jobs=(_gang(*roles),))).admitted
    assert admit.nodes.count("n0") == 2


def test_reservation_of_a_gang_covers_all_roles() -> None:
    """The larger gang is first in the queue: the job behind it takes none of its nodes."""
    busy = [node(f"n{at}", used={GPU: 8}) for at in range(2)]
    machines = [*busy, _with_cpu("n2", gpus=0)]
    first = replace(_gang(WORKERS, EVALUATOR), priority=1)
    behind = replace(job("behind", per_pod={"cpu": 8_000}))
    decided = decide(cluster(*machines, jobs=(first, behind)))
    assert not decided.admitted
    assert decide(cluster(*machines, jobs=(behind,))).admitted


def test_ranks_are_mapped_only_once_the_gang_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mapping takes far longer than placement, and a gang that waits is placed many times."""
    mapped: list[str] = []
    request = ranks.mapping_request

    def counted(role: Role, *more: Any) -> Any:
        mapped.append(role.name)
        return request(role, *more)

    monkeypatch.setattr(ranks, "mapping_request", counted)
    workload = workload_of(Parallelism(data=2))
    trains = replace(WORKERS, workload=workload)
    others = replace(WORKERS, name="actor")
    for count, times in ((2, 0), (4, 1)):
        machines = [node(f"n{at}", "a") for at in range(count)]
        decide(cluster(*machines, jobs=(_gang(others, trains),), levels=("rack",)))
        assert mapped == ["worker"] * times


def test_spread_counts_a_shared_node_once() -> None:
    """Each rack has one node; with at most one node of a rack both roles run on the same ones."""
    machines = [_with_cpu("a0", "a"), _with_cpu("b0", "b")]
    apart = TopologyConstraints(spreads=(TierLimit("rack", 1),))
    roles = [replace(role, replicas=2, constraints=apart) for role in (WORKERS, EVALUATOR)]
    (admit,) = decide(cluster(*machines, jobs=(_gang(*roles),), levels=("rack",))).admitted
    assert sorted(admit.nodes) == ["a0", "a0", "b0", "b0"]


def test_gang_starts_on_the_rail_order_that_holds_all_roles() -> None:
    """More nodes for the first role have one order of rails, but only the other holds both."""
    first = [_railed(f"a{at}", (0, 1), gpus=8) for at in range(3)]
    other = [_railed(f"b{at}", (1, 0), gpus=16) for at in range(2)]
    aligned = TopologyConstraints(aligned=True)
    roles = [replace(WORKERS, constraints=aligned, name=name) for name in ("actor", "learner")]
    snapshot = cluster(*first, *other, jobs=(_gang(*roles),))
    (admit,) = decide(snapshot).admitted
    assert set(admit.nodes) == {"b0", "b1"}


def test_gang_passes_racks_that_hold_each_role_alone() -> None:
    """In a site that is in use, many racks have a few nodes left, and few have enough for all."""
    few = [node(f"{rack}{at}", rack) for rack in "abcde" for at in range(3)]
    enough = [node(f"f{at}", "f") for at in range(4)]
    roles = [replace(WORKERS, constraints=RACK, name=name) for name in ("actor", "learner")]
    snapshot = cluster(*few, *enough, jobs=(_gang(*roles),), levels=("rack",))
    (admit,) = decide(snapshot).admitted
    assert sorted(admit.nodes) == ["f0", "f1", "f2", "f3"]


def test_gang_passes_rail_orders_that_hold_each_role_alone() -> None:
    orders = [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1)]
    few = [_railed(f"{at}{i}", order, gpus=8) for at, order in enumerate(orders) for i in range(3)]
    enough = [_railed(f"f{at}", (2, 1, 0), gpus=8) for at in range(4)]
    roles = [
        replace(WORKERS, constraints=TopologyConstraints(aligned=True), name=name)
        for name in ("actor", "learner")
    ]
    (admit,) = decide(cluster(*few, *enough, jobs=(_gang(*roles),))).admitted
    assert sorted(admit.nodes) == ["f0", "f1", "f2", "f3"]


def test_spread_keeps_whole_segments_for_a_later_role() -> None:
    """The block may give four nodes. Once the first role has two of rack a, the two that are left
    to the second must be those of rack c, not the one of rack b."""
    racks = {"a0": "a", "a1": "a", "b0": "b", "c0": "c", "c1": "c"}
    machines = [
        node(name, "x", rack, allocatable={"cpu": 8_000 if name == "a0" else 16_000})
        for name, rack in racks.items()
    ]
    constraints = TopologyConstraints(
        segments=(TierLimit("rack", 2),), spreads=(TierLimit("block", 4),)
    )
    roles = [
        Role(2, {"cpu": cpu}, name=f"r{cpu}", constraints=constraints) for cpu in (8_000, 2_000)
    ]
    assert decide(cluster(*machines, jobs=(_gang(*roles),), levels=("block", "rack"))).admitted


def test_narrow_spread_leaves_what_a_wide_one_allows() -> None:
    """Beside a0 the block may give two nodes, and rack a one: a1 and b0, not a1 and a2."""
    machines = [
        _with_cpu("a0", "x", "a"),
        *(node(name, "x", name[0]) for name in ("a1", "a2", "b0")),
    ]
    spreads = (TierLimit("rack", 2), TierLimit("block", 3))
    constraints = TopologyConstraints(spreads=spreads)
    roles = [
        Role(1, {GPU: 8, "cpu": 8_000}, name="actor", constraints=constraints),
        replace(WORKERS, constraints=constraints),
    ]
    (admit,) = decide(cluster(*machines, jobs=(_gang(*roles),), levels=("block", "rack"))).admitted
    assert admit.nodes[0] == "a0"
    assert "b0" in admit.nodes


def test_domains_of_a_gang_are_those_of_all_roles_once() -> None:
    machines = [_with_cpu("a0", "a"), _with_cpu("b0", "b")]
    (admit,) = decide(
        cluster(*machines, jobs=(_gang(WORKERS, EVALUATOR),), levels=("rack",))
    ).admitted
    assert admit.spans == (2,)


def test_gang_is_tried_in_other_orders_of_its_roles() -> None:
    """In the order of the nodes to spare, and with these spared, the gang does not fit."""
    machines = [
        node(name, "y" if name > "d" else "x", name[0], allocatable={GPU: 8, "cpu": cpu})
        for name, cpu in (("a0", 8), ("a1", 8), ("b0", 16), ("c0", 16), ("d0", 8), ("d1", 16))
    ]
    machines[-1] = replace(machines[-1], used={GPU: 8})
    apart = TopologyConstraints(spreads=(TierLimit("rack", 1),))
    pods = [(1, 5, 0), (2, 8, 0), (1, 2, 8), (2, 2, 2)]
    roles = [
        Role(replicas, {GPU: gpus, "cpu": cpu}, name=f"r{at}", constraints=apart)
        for at, (replicas, gpus, cpu) in enumerate(pods)
    ]
    assert decide(cluster(*machines, jobs=(_gang(*roles),), levels=("block", "rack"))).admitted


def test_gang_tries_the_largest_rack_if_none_holds_all() -> None:
    """The actor, which has fewer nodes to choose from, leaves none for the learner: in racks a to e
    as there is no other, and in rack f unless it takes the larger node. Rack 0 holds the actor
    alone, racks x to z the learner."""
    few = [_with_cpu(f"{rack}0", rack) for rack in "abcde"]
    other = [node(f"{rack}{at}", rack) for rack in "xyz" for at in range(4)]
    large = {GPU: 4, "cpu": 8_000, "example.com/nic": 8}
    other.append(node("00", "0", allocatable=large))
    enough = [_with_cpu("f0", "f"), node("f1", "f", allocatable=large)]
    roles = [
        Role(1, {GPU: 1, "cpu": 8_000}, name="actor", constraints=RACK),
        Role(1, {GPU: 8}, name="learner", constraints=RACK),
    ]
    snapshot = cluster(*few, *other, *enough, jobs=(_gang(*roles),), levels=("rack",))
    (admit,) = decide(snapshot).admitted
    assert admit.nodes == ("f1", "f0")


def test_gang_starts_on_nodes_that_it_would_reserve() -> None:
    """The search for a start misses the one placement, of three racks a node, that the search for
    a reservation finds; such a gang waited for ever beside its own free nodes."""
    racks = (("a0", "a"), ("b0", "b"), ("b1", "b"), ("c0", "c"), ("c1", "c"))
    machines = [node(*each, allocatable={GPU: 8, "cpu": 16_000}) for each in racks]
    machines[3] = node("c0", "c", allocatable={GPU: 8, "cpu": 8_000})
    apart = TopologyConstraints(spreads=(TierLimit("rack", 1),))
    roles = [
        Role(replicas, {"cpu": cpu}, name=f"r{at}", constraints=apart)
        for at, (replicas, cpu) in enumerate([(2, 8_000), (1, 2_000), (3, 8_000)])
    ]
    workload = workload_of(Parallelism(data=3))
    for trained in (None, workload):
        gang = _gang(*roles[:2], replace(roles[2], workload=trained))
        (admit,) = decide(cluster(*machines, jobs=(gang,), levels=("rack",))).admitted
        assert len(set(admit.nodes)) == 3


def test_role_is_placed_near_the_roles_before_it() -> None:
    """By itself the evaluator takes the node with the least capacity, which is in rack a."""
    machines = [_with_cpu("a0", "a", gpus=0), *(_with_cpu(f"b{at}", "b") for at in range(2))]
    gang = _gang(WORKERS, EVALUATOR)
    (admit,) = decide(cluster(*machines, jobs=(gang,), levels=("rack",))).admitted
    assert admit.nodes[2] in {"b0", "b1"}


def test_spread_cuts_no_segments_of_a_later_role() -> None:
    """Each block has a rack of one node and one of two, and may give two nodes: only the racks of
    two hold a segment, one for each role."""
    machines = [
        _with_cpu(f"{block}{rack}{at}", block, f"{block}{rack}")
        for block in "ab"
        for rack, count in (("r0", 1), ("r1", 2))
        for at in range(count)
    ]
    constraints = TopologyConstraints(
        segments=(TierLimit("rack", 2),), spreads=(TierLimit("block", 2),)
    )
    roles = [replace(WORKERS, constraints=constraints, name=name) for name in ("actor", "learner")]
    (admit,) = decide(cluster(*machines, jobs=(_gang(*roles),), levels=("block", "rack"))).admitted
    assert sorted(admit.nodes) == ["ar10", "ar11", "br10", "br11"]


def _railed(name: str, order: tuple[int, ...], *, gpus: int) -> Node:
    return replace(_with_cpu(name, gpus=gpus), rails=Rails(order))


def test_gang_of_several_roles_reserves_as_it_would_start() -> None:
    """Only n0 holds a large pod, so the small one does not reserve it, whichever role is first."""
    machines = [node("n0", used={GPU: 8}), node("n1", allocatable={GPU: 4}, used={GPU: 4})]
    small, large = Role(1, {GPU: 2}, name="small"), Role(1, {GPU: 8}, name="large")
    for order in ((small, large), (large, small)):
        decided = decide(cluster(*machines, jobs=(_gang(*order),)))
        assert not decided.admitted
        assert sorted(decided.reservations[job().uid]) == ["n0", "n1"]


def test_reservation_leaves_later_roles_what_they_need() -> None:
    """A role could take n9 now, which another needs once it is free; others do for the first."""
    in_block = TopologyConstraints(required="block")
    narrow = TopologyConstraints(spreads=(TierLimit("rack", 2),))
    roles = (
        Role(1, {GPU: 8}, name="first", constraints=in_block),
        Role(1, {GPU: 1}, name="anywhere", shares_topology=False),
        Role(1, {GPU: 8}, name="second", constraints=in_block),
        Role(2, {GPU: 1}, name="narrow", constraints=narrow, shares_topology=False),
    )
    elsewhere = [node(f"n{at}", "", "") for at in range(6)]
    in_racks = [node("n6", "", "a"), node("n7", "a", "a"), node("n8", "c", "")]
    busy = node("n9", "c", "a", used={GPU: 1})
    gang = replace(job(), roles=roles)
    decided = decide(cluster(*elsewhere, *in_racks, busy, jobs=(gang,), levels=("block", "rack")))
    first, _, second, *others = decided.reservations[gang.uid]
    assert {first, second} == {"n8", "n9"}
    assert sorted(others) == ["n6", "n7"]


def _trials(monkeypatch: pytest.MonkeyPatch) -> list[Trial]:
    """The trials of all searches from here on."""
    found: list[Trial] = []
    place = GangSearch.place

    def counted(search: GangSearch, trial: Trial, *more: Any) -> Any:
        found.append(trial)
        return place(search, trial, *more)

    monkeypatch.setattr(GangSearch, "place", counted)
    return found


@pytest.mark.parametrize("large", [0, 29])
def test_one_cycle_makes_so_many_trials(monkeypatch: pytest.MonkeyPatch, large: int) -> None:
    """Each gang needs four nodes of a rack. If no rack has as many, all trials fail; if most do,
    each gang starts in the first that it is tried in. A trial of eight roles takes milliseconds,
    and many such gangs may wait."""
    machines = [
        node(f"n{rack}-{at}", f"r{rack}", used={GPU: 0 if rack < large or at < 3 else 8})
        for rack in range(32)
        for at in range(16)
    ]
    roles = [Role(1, {GPU: 4}, name=f"r{at}", constraints=RACK) for at in range(8)]
    jobs = tuple(replace(job(f"j{at}"), roles=tuple(roles), submitted_s=at) for at in range(116))
    trials = _trials(monkeypatch)
    decided = decide(cluster(*machines, jobs=jobs, levels=("rack",)))
    assert bool(decided.admitted) == bool(large)
    assert (decided.queue_round is None) == bool(large)
    assert 100 < len(trials) < 250


def test_search_ends_with_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    machines = [node("n0"), node("n1"), node("n2", used={GPU: 8})]
    gang = _gang(WORKERS, replace(WORKERS, name="actor", replicas=1))
    monkeypatch.setattr(gang_search, "SEARCH_WORK", 0)
    trials = _trials(monkeypatch)
    decided = decide(cluster(*machines, jobs=(gang,)))
    assert len(decided.reservations[gang.uid]) == 3
    assert len(trials) == 2
