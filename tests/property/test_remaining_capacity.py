"""What is left on nodes as jobs take it, against a count node by node."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from railwright_scheduler.arrays import Ints
from railwright_scheduler.cluster import PodRequest, Remaining, Taken

NODES, RESOURCES = 20, 3


def _requests() -> st.SearchStrategy[PodRequest]:
    amounts = st.dictionaries(st.integers(0, RESOURCES - 1), st.integers(1, 3))
    return amounts.map(lambda its: PodRequest.of(sorted(its.items())))


def _taken() -> st.SearchStrategy[Taken]:
    nodes = st.sets(st.integers(0, NODES - 1), min_size=1)
    return st.builds(lambda its, request: Taken(np.array(sorted(its)), request), nodes, _requests())


def _left(amounts: Ints, taken: Sequence[Taken]) -> list[dict[int, int]]:
    """What each node has left of each resource."""
    left = [dict(enumerate(column)) for column in amounts.T.tolist()]
    for each in taken:
        for node in each.nodes.tolist():
            for row, need in zip(each.request.rows.tolist(), each.request.need[:, 0], strict=True):
                left[node][row] -= int(need)
    return left


@given(
    st.lists(st.integers(0, 9), min_size=NODES * RESOURCES, max_size=NODES * RESOURCES),
    st.lists(st.tuples(_taken(), _requests(), st.lists(_taken(), max_size=4)), max_size=6),
)
def test_nodes_that_hold_a_request_equal_a_naive_count(
    amounts: list[int], steps: list[tuple[Taken, PodRequest, list[Taken]]]
) -> None:
    """After each job that takes something, beside what roles of the next one would take."""
    first = np.array(amounts).reshape(RESOURCES, NODES)
    remaining, before = Remaining(first), list[Taken]()
    for taken, request, beside in steps:
        remaining.subtract(taken.nodes, taken.request)
        before.append(taken)
        left = _left(first, [*before, *beside])
        needs = dict(zip(request.rows.tolist(), request.need[:, 0].tolist(), strict=True))
        short = [[node[row] < need for node in left] for row, need in needs.items()]
        holds = [all(node[row] >= need for row, need in needs.items()) for node in left]
        assert remaining.holds(request, beside).tolist() == holds
        assert remaining.short_of(np.arange(NODES), request, beside).tolist() == short
