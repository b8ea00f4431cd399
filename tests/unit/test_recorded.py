"""The communicators of an opaque workload are the groups that its ranks recorded."""

from __future__ import annotations

from dataclasses import replace

from fixtures import cluster, job, node
from railwright_scheduler.communication import graph, measured
from railwright_scheduler.model.profile import CallRecord, GroupProfile, Operation, Profile
from railwright_scheduler.model.snapshot import Snapshot
from railwright_scheduler.model.workload import Framework, Parallelism, Recipe, Workload
from railwright_scheduler.policy.decide import decide
from railwright_topology.links import Links


def opaque(split: Parallelism, *kinds: GroupProfile, ranks: int = 0) -> Workload:
    profile = Profile(ranks or split.ranks, steps=2, kinds=kinds) if kinds else None
    recipe = Recipe(1, 1, split.data, framework=Framework.MEGATRON)
    return Workload(None, split, recipe, profile)


def calls(operation: Operation, size: int, hop: int = 0) -> CallRecord:
    return CallRecord(operation, "bfloat16", calls=2, size=2 * size, hop=hop)


def test_opaque_workload_without_profile_has_no_communicators() -> None:
    plain = opaque(Parallelism(tensor=2, data=2))
    assert measured.communicators(plain) == ()
    assert not plain.has_traffic


def test_recorded_groups_need_no_axes() -> None:
    """Groups along no axis of the parallelism count, and some may leave ranks out."""
    odd = GroupProfile(((0, 3), (1, 2)), (calls(Operation.ALL_REDUCE, 100),))
    some = GroupProfile(((0, 1, 3),), (calls(Operation.BROADCAST, 30),))
    found = measured.communicators(opaque(Parallelism(data=4), odd, some))
    assert graph.pairs(found) == {(0, 3): 220, (1, 2): 200, (0, 1): 20, (1, 3): 20}


def test_recorded_sends_go_over_any_distance() -> None:
    sends = (calls(Operation.SEND, 10, 2), calls(Operation.SEND, 5, -3))
    found = measured.communicators(
        opaque(Parallelism(data=4), GroupProfile(((0, 1, 2, 3),), sends))
    )
    assert graph.pairs(found) == {(0, 2): 10, (1, 3): 10, (0, 3): 5}


def test_smaller_profile_is_scaled_along_the_axes() -> None:
    """Gathered weights are the same for any number of replicas; exchanged parts grow."""
    weights, parts = calls(Operation.ALL_GATHER, 80), calls(Operation.ALL_TO_ALL, 80)
    seen = GroupProfile(((0, 2), (1, 3)), (weights, parts))
    (found,) = measured.communicators(opaque(Parallelism(tensor=2, data=4), seen, ranks=4))
    assert found.grid.groups(*found.axes).tolist() == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert [each.size for each in found.traffic] == [80, 160]


def test_groups_of_experts_are_scaled_as_such() -> None:
    """Experts are spread over the ranks of a stage, whatever its dense axes are."""
    tokens = GroupProfile(((0, 1, 2, 3),), (calls(Operation.ALL_TO_ALL, 64),))
    split = Parallelism(data=8, expert=4)
    seen = GroupProfile(((0, 1, 2, 3), (4, 5, 6, 7)), tokens.seen)
    (found,) = measured.communicators(opaque(replace(split, data=16), seen, ranks=8))
    assert (found.name, found.ranks, found.traffic[0].size) == ("expert", 4, 64)


def test_opaque_job_is_mapped_by_its_profile_alone() -> None:
    """Ranks r and r + 4 exchange the most: each pair gets a rack of its own."""
    pairs = tuple((rank, rank + 4) for rank in range(4))
    seen = GroupProfile(pairs, (calls(Operation.ALL_REDUCE, 1 << 20),))
    nodes = tuple(node(f"n{at}", f"r{at // 2}") for at in range(8))
    for workload, mapped in ((opaque(Parallelism(data=8), seen), True), (None, False)):
        asked = job("a", replicas=8, workload=workload)
        floor = Snapshot(("rack",), nodes, ("default",), (asked,), links=(Links(4.0),))
        (admitted,) = decide(floor).admitted
        racks = [int(name[1:]) // 2 for name in admitted.nodes]
        assert all(racks[one] == racks[other] for one, other in pairs) is mapped
        assert (admitted.score is not None and admitted.score.measured) is mapped


def test_sends_over_hundreds_of_distances_exceed_the_budget() -> None:
    """Each two ranks that send are laid out, and users write profiles."""
    nodes = tuple(node(f"n{at}", f"r{at // 16}") for at in range(32))
    for distances, is_cut in ((4, False), (200, True)):
        kinds = [
            GroupProfile(
                (tuple(range(256)),),
                tuple(calls(Operation.SEND, 100 + number, hop) for hop in range(1, 1 + distances)),
            )
            for number in range(4)
        ]
        planned = job(replicas=32, ranks_per_pod=8, workload=opaque(Parallelism(data=256), *kinds))
        (admit,) = decide(cluster(*nodes, jobs=(planned,), levels=("rack",))).admitted
        assert admit.score is not None
        assert admit.score.truncated == ("WorkBudgetExceeded" if is_cut else "")
