"""Ranks are folded without loss, and the order of merging does not matter."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from railwright import profile, strides
from railwright.profile import Calls, Operation, Recorded


@given(st.sets(st.integers(0, 1_000)))
def test_folded_ranks_are_the_same_ranks(ranks: set[int]) -> None:
    found = strides.unfolded(strides.folded(ranks))
    assert sorted(found) == sorted(ranks)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 6))
def test_a_box_of_ranks_is_one_run(inner: int, times: int, apart: int) -> None:
    by = inner * apart
    ranks = [first + rank for first in range(0, by * times, by) for rank in range(inner)]
    assert len(strides.folded(ranks)) == 1


@given(st.data())
def test_parts_may_come_in_any_order(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 1_000), min_size=4, max_size=4))
    parts = [
        Recorded(
            rank,
            ranks=4,
            steps=1,
            step_s=1.0,
            compute_s=None,
            calls=(
                Calls(
                    strides.folded((rank // 2 * 2, rank // 2 * 2 + 1)),
                    Operation.ALL_REDUCE,
                    "float32",
                    1,
                    size,
                ),
                Calls(strides.folded(range(4)), Operation.SEND, "float32", 1, size, to=rank ^ 2),
            ),
        )
        for rank, size in enumerate(sizes)
    ]
    found = profile.merged(parts)
    assert profile.merged(data.draw(st.permutations(parts))) == found
    together, sends = (
        [kind for kind in found.kinds if (kind.traffic[0].operation is Operation.SEND) is is_send]
        for is_send in (False, True)
    )
    assert [max(each.size for each in kind.traffic) for kind in together] == [max(sizes)]
    assert [max(each.size for each in kind.traffic) for kind in sends] == [max(sizes)]
