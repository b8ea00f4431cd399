"""Parts of a recording become one document: groups of a kind once, and nothing that is amiss."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest

from railwright import profile, protocol, strides
from railwright.profile import (
    KINDS_A_RANK,
    Calls,
    Kind,
    MismatchError,
    Operation,
    Profile,
    Recorded,
)
from railwright.strides import Run, Stride


def part(rank: int, *calls: Calls, ranks: int = 4) -> Recorded:
    return Recorded(rank, ranks, steps=2, step_s=0.5, compute_s=0.25, calls=calls)


def together(*group: int, size: int = 64, seconds: float | None = 0.1) -> Calls:
    runs = strides.folded(group)
    return Calls(runs, Operation.ALL_REDUCE, "float32", calls=4, size=size, seconds=seconds)


def sent(to: int, *group: int, calls: int = 2) -> Calls:
    runs = strides.folded(group)
    return Calls(runs, Operation.SEND, "float32", calls=calls, size=16 * calls, to=to)


@pytest.mark.parametrize(
    ("ranks", "runs"),
    [
        ([5], (Run(5),)),
        (range(8), (Run(0, (Stride(1, 8),)),)),
        ([0, 1, 8, 9, 16, 17], (Run(0, (Stride(1, 2), Stride(8, 3))),)),
        ([0, 1, 7], (Run(0, (Stride(1, 2),)), Run(7))),
        ([], ()),
    ],
)
def test_ranks_that_are_evenly_apart_are_one_run(ranks: range, runs: tuple[Run, ...]) -> None:
    assert strides.folded(ranks) == runs


def test_groups_of_a_kind_merge_with_their_largest_traffic() -> None:
    """The profile has one group with the largest calls."""
    parts = [
        part(0, together(0, 1), together(0, 2, size=8)),
        part(1, together(0, 1, seconds=0.3), together(1, 3, size=8)),
        part(2, together(2, 3, size=96), together(0, 2, size=8)),
        part(3, together(2, 3, size=96, seconds=None), together(1, 3, size=8)),
    ]
    found = profile.merged(reversed(parts))
    assert (found.ranks, found.steps, found.step_s, found.compute_s) == (4, 2, 0.5, 0.25)
    assert [[*profile.groups(kind)] for kind in found.kinds] == [
        [(0, 1), (2, 3)],
        [(0, 2), (1, 3)],
    ]
    (traffic,) = found.kinds[0].traffic
    assert (traffic.calls, traffic.size, traffic.seconds) == (4, 96, 0.1)
    assert profile.profile(profile.encoded(found)) == found


def test_the_kinds_of_devices_that_ranks_trained_on_are_kept() -> None:
    kinds = ["B", "A", "B", ""]
    found = profile.merged(
        replace(part(rank, together(0, 1, 2, 3)), device=kind) for rank, kind in enumerate(kinds)
    )
    assert found.devices == ("A", "B")
    assert profile.profile(profile.encoded(found)) == found
    many = [f"kind {rank:02}" for rank in range(16)] + ["often"] * 16
    parts = (replace(part(rank, ranks=32), device=kind) for rank, kind in enumerate(many))
    most = profile.merged(parts).devices
    assert (len(most), most[-1]) == (profile.DEVICES_MAX, "often")
    assert profile.merged(part(rank) for rank in range(4)).devices == ()


def test_ranks_sending_to_each_other_are_a_group() -> None:
    """Sends within a group of all ranks are split into connected ranks."""
    everyone = range(6)
    sends = {0: [2], 2: [0, 4], 4: [2], 1: [3], 3: [1, 5], 5: [3]}
    parts = [
        part(rank, *(sent(to, *everyone) for to in targets), ranks=6)
        for rank, targets in sends.items()
    ]
    (kind,) = profile.merged(parts).kinds
    assert [*profile.groups(kind)] == [(0, 2, 4), (1, 3, 5)]
    assert [(each.hop, each.calls) for each in kind.traffic] == [(-1, 2), (1, 2)]


def test_a_document_of_the_largest_job_is_small() -> None:
    tensor, data, stages = 8, 128, 16
    stage, ranks = tensor * data, tensor * data * stages

    def its(rank: int) -> list[Run]:
        replicas = Run(rank % tensor + rank // stage * stage, (Stride(tensor, data),))
        everyone = Run(0, (Stride(1, ranks),))
        return [Run(rank - rank % tensor, (Stride(1, tensor),)), replicas, everyone]

    parts = [
        part(
            rank,
            *(Calls((run,), Operation.ALL_REDUCE, "bfloat16", 2, 64) for run in its(rank)),
            ranks=ranks,
        )
        for rank in range(ranks)
    ]
    found = profile.merged(parts)
    groups = [sum(1 for _ in profile.groups(kind)) for kind in found.kinds]
    assert groups == [1, tensor * stages, data * stages]
    assert len(profile.encoded(found)) < 2_000


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ([], "seen no rank's part"),
        ([part(0), part(1), part(3)], "nothing is there of rank 2, of 4 ranks"),
        ([part(0), part(1), part(1), part(2), part(3)], "rank 1: expected once each"),
        ([part(0, ranks=1), part(1, ranks=1)], "rank 1: expected once each of 1 ranks"),
        ([part(0), replace(part(1), steps=3)], "rank 1: seen 3 steps of 4 ranks, expected 2 of 4"),
    ],
)
def test_parts_that_are_not_of_one_recording_are_refused(parts: list[Recorded], words: str) -> None:
    with pytest.raises(MismatchError, match=words):
        profile.merged(parts)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 0}, "version: seen 0, expected a whole number from 1"),
        ({"ranks": 0}, "ranks: seen 0"),
        ({"steps": 1.5}, "steps: seen 1.5"),
        (
            {
                "kinds": [
                    {
                        "group": [{"first": 0}],
                        "firsts": [{"first": 0}],
                        "traffic": [
                            {
                                "operation": "all-reduce",
                                "element": "float\u202e",
                                "calls": 1,
                                "size": 1,
                            }
                        ],
                    }
                ]
            },
            r"element: seen 'float.u202e', expected a type's name",
        ),
        ({"step_s": None}, "step_s: seen None, expected a finite number"),
        ({"kinds": [{}]}, "kinds.0..group: missing"),
        (
            {"kinds": [{"group": [], "firsts": [], "traffic": []}]},
            "kinds: seen 0 ranks, the last of them -1, expected some of 0 to 1",
        ),
        (
            {"kinds": [{"group": [{"first": 0}], "firsts": [{"first": 2}], "traffic": []}]},
            "seen 1 ranks, the last of them 2, expected some of 0 to 1",
        ),
        (
            {
                "kinds": [
                    {
                        "group": [{"first": 0, "strides": [{"by": 2**20, "times": 2**20}]}],
                        "firsts": [{"first": 0}],
                        "traffic": [],
                    }
                ]
            },
            "expected at most 1048575",
        ),
    ],
)
def test_invalid_profile_is_refused(change: dict[str, object], words: str) -> None:
    document = json.loads(profile.encoded(profile.merged([part(0, ranks=1)])))
    document |= {"ranks": 2}
    with pytest.raises(protocol.ProtocolError, match=words):
        profile.profile(json.dumps(document | change).encode())


@pytest.mark.parametrize(
    "calls",
    [
        Calls((), Operation.ALL_REDUCE, "float32", 1, 8),
        Calls((Run(0), Run(4)), Operation.ALL_REDUCE, "float32", 1, 8),
        Calls((Run(0, (Stride(1, 2), Stride(1, 3))),), Operation.ALL_REDUCE, "float32", 1, 8),
        Calls((Run(0),), Operation.SEND, "float32", 1, 8, to=4),
    ],
)
def test_a_part_about_ranks_that_there_are_not_is_refused(calls: Calls) -> None:
    with pytest.raises(protocol.ProtocolError, match="expected some of 0 to 3"):
        part(0, calls)


def test_more_groups_than_ranks_can_be_in_are_refused() -> None:
    """A reader of a profile has to process each of them."""
    groups = [group for size in range(2, 5) for group in itertools.combinations(range(6), size)]
    parts = [part(rank, *(together(*group) for group in groups), ranks=6) for rank in range(6)]
    with pytest.raises(MismatchError, match="seen 50 groups, expected fewer, of 6 ranks"):
        profile.merged(parts)


def test_groups_of_all_kinds_together_are_bounded() -> None:
    """A document of a few KiB could represent half a million ranks of groups, in each job."""
    kind = Kind((Run(0, (Stride(1, 8),)),), (Run(0, (Stride(8, 128),)),), ())
    whole = Profile(1024, 1, 1.0, None, (kind,) * KINDS_A_RANK)
    with pytest.raises(
        protocol.ProtocolError, match="seen 128 groups of 8 ranks each, expected fewer"
    ):
        replace(whole, kinds=(kind,) * (KINDS_A_RANK + 1))


def test_ranks_of_all_recorded_groups_are_bounded() -> None:
    groups = [*itertools.islice(itertools.combinations(range(12), 8), 60)]
    parts = [part(rank, *(together(*group) for group in groups), ranks=12) for rank in range(12)]
    with pytest.raises(MismatchError, match="seen 60 groups, expected fewer, of 12 ranks"):
        profile.merged(parts)


def test_too_large_profile_is_refused() -> None:
    with pytest.raises(protocol.ProtocolError, match="at most"):
        profile.profile(b" " * (profile.BYTES_MAX + 1))
