"""What was seen of a pre-run becomes a job's communicators, or is refused with the reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fixtures import seen
from railwright_scheduler.communication import derive, graph, measured
from railwright_scheduler.communication.graph import Collective, Overlap
from railwright_scheduler.communication.grid import Axis
from railwright_scheduler.communication.measured import UnfitError
from railwright_scheduler.model.profile import CallRecord, GroupProfile, Operation, Profile
from railwright_scheduler.model.workload import (
    Framework,
    Optimizer,
    Parallelism,
    Recipe,
    Transformer,
    Workload,
)

GPT = Transformer(8, 256, 8, 8, 32, 1024, 1_000)


def job(split: Parallelism, profile: Profile | None = None) -> Workload:
    recipe = Recipe(64, 1, 4 * split.data, overlap=True, framework=Framework.TORCH)
    return Workload(GPT, split, recipe, profile)


def of(ranks: int, *kinds: GroupProfile) -> Profile:
    return Profile(ranks, steps=2, kinds=kinds)


def everyone(ranks: int, *calls: CallRecord) -> GroupProfile:
    return GroupProfile((tuple(range(ranks)),), calls)


def test_job_without_profile_has_derived_traffic() -> None:
    plain = job(Parallelism(tensor=2, data=2))
    assert measured.communicators(plain) == derive.communicators(*plain.parts)


def test_calls_of_steps_become_one_step_and_overlap_as_derived() -> None:
    """Recorded calls are averaged, and overlap as the derived ones."""
    gradients = CallRecord(Operation.ALL_REDUCE, "float32", calls=6, size=6_000)
    flags = CallRecord(Operation.BROADCAST, "int64", calls=1, size=10)
    (found,) = measured.communicators(
        job(Parallelism(data=4), of(4, everyone(4, gradients, flags)))
    )
    assert (found.name, found.axes) == ("data", (Axis.CONTEXT, Axis.DATA, Axis.REPLICA))
    assert [(each.what, each.collective, each.count, each.size) for each in found.traffic] == [
        ("all-reduce of float32", Collective.ALL_REDUCE, 3, 1_000),
        ("broadcast of int64", Collective.ALL_GATHER, 1, 5),
    ]
    assert [each.overlap for each in found.traffic] == [Overlap.BACKWARD, Overlap.NOTHING]


def test_call_of_all_ranks_is_one_communicator() -> None:
    loss = CallRecord(Operation.ALL_REDUCE, "float32", calls=2, size=8)
    split = Parallelism(tensor=2, data=2)
    (found,) = measured.communicators(job(split, of(4, everyone(4, loss))))
    assert (found.name, found.ranks) == ("all ranks", 4)


def test_offload_traffic_is_derived_beside_profile() -> None:
    gradients = CallRecord(Operation.ALL_REDUCE, "float32", 2, 200)
    plain = job(Parallelism(data=2), of(2, everyone(2, gradients)))
    offloading = replace(plain, recipe=replace(plain.recipe, optimizer=Optimizer.HOST))
    seen_then, host = measured.communicators(offloading)
    assert seen_then.name == "data"
    assert host == derive.communicators(*offloading.parts)[-1]
    assert host.name == "offload"


def test_of_stages_that_differ_the_one_that_sends_most_counts() -> None:
    small, large = (CallRecord(Operation.ALL_REDUCE, "float32", 2, size) for size in (200, 400))
    flags = CallRecord(Operation.ALL_REDUCE, "int32", 2, 8)
    split = Parallelism(tensor=2, pipeline=2)
    profile = of(4, GroupProfile(((0, 1),), (small, flags)), GroupProfile(((2, 3),), (large,)))
    (found,) = measured.communicators(job(split, profile))
    assert [(each.what, each.size) for each in found.traffic] == [
        ("all-reduce of float32", 200),
        ("all-reduce of int32", 4),
    ]


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("virtual", [1, 2, 3])
def test_interleaved_stages_exchange_what_was_seen_of_each_two(ranks: int, virtual: int) -> None:
    split = Parallelism(pipeline=ranks, virtual=virtual)
    plain = job(split)
    measured_workload = replace(plain, profile=seen.profile(plain))
    found, derived = measured.communicators(measured_workload), derive.communicators(*plain.parts)
    assert graph.pairs(found) == graph.pairs(derived)
    assert [each.sent for each in found] == [each.sent for each in derived]


def test_gathered_size_grows_with_ranks() -> None:
    times = CallRecord(Operation.ALL_GATHER, "float64", calls=2, size=2 * 4 * 8)
    found = measured.communicators(job(Parallelism(data=8), of(4, everyone(4, times))))
    (traffic,) = found[0].traffic
    assert (traffic.size, found[0].ranks) == (8 * 8, 8)


@pytest.mark.parametrize(
    ("split", "profile", "words"),
    [
        (Parallelism(tensor=2, data=4), of(3), "have 2 ranks each and there are 4: record it on 4"),
        (Parallelism(tensor=2, data=4), of(7), "have 2 ranks each and there are 4: record it on 6"),
        (Parallelism(data=2), of(4), "of 4 ranks, but replicas .* record it on 2"),
        (Parallelism(tensor=2, data=4), of(2), "of one replica, of the job's 4: .* on 4 ranks"),
        (Parallelism(data=8, replicas=2), of(2), "not sharded as the job's 8 are; record it on 4"),
        (Parallelism(data=8, servers=1), of(4), "servers is not recorded"),
        (Parallelism(data=4), of(4), "nothing was seen of what 4 ranks send each other"),
        (
            Parallelism(tensor=2, data=2),
            of(4, GroupProfile(((0, 3),), (CallRecord(Operation.ALL_REDUCE, "float32", 2, 8),))),
            "ranks 0, 3 are a group of the profile, but differ along no axes of tensor 2 × ",
        ),
        (
            Parallelism(pipeline=4),
            of(4, everyone(4, CallRecord(Operation.SEND, "float32", 2, 8, hop=2))),
            "send to those 2 places further",
        ),
    ],
)
def test_profile_that_does_not_fit_the_job_is_refused(
    split: Parallelism, profile: Profile, words: str
) -> None:
    with pytest.raises(UnfitError, match=words):
        measured.communicators(job(split, profile))
