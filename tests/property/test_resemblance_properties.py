"""Orders of which only the names of equal domains change: as many ranks stay as before, or more."""

from __future__ import annotations

from collections import defaultdict
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from railwright_scheduler.mapping import minimal_movement


@st.composite
def orders(draw: st.DrawFn) -> tuple[list[int], list[int], list[int], list[int]]:
    """An order, the one before with some nodes gone, domains, and their kinds."""
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    domains = [at for at, size in enumerate(sizes) for _ in range(size)]
    kinds = [4 * size + draw(st.integers(0, 1)) for size in sizes]
    count = len(domains)
    order = draw(st.permutations(range(count)))
    before = [draw(st.sampled_from([at, at, at, -1])) for at in draw(st.permutations(range(count)))]
    return list(order), before, domains, kinds


def resembling(
    order: list[int], before: list[int], domains: list[int], kinds: list[int]
) -> list[int]:
    new, old, where = (np.array(each, dtype=np.int64) for each in (order, before, domains))
    found: list[int] = minimal_movement.minimize_movement(new, old, where, kinds).tolist()
    return found


def stay(order: list[int], before: list[int]) -> int:
    return sum(one == other for one, other in zip(order, before, strict=True))


def groups(order: list[int], domains: list[int]) -> list[tuple[int, ...]]:
    found = defaultdict(list)
    for rank, at in enumerate(order):
        found[domains[at]].append(rank)
    return [tuple(found[domain]) for domain in sorted(found)]


@given(orders())
def test_equal_domains_change_places_and_nothing_else(
    drawn: tuple[list[int], list[int], list[int], list[int]],
) -> None:
    order, before, domains, kinds = drawn
    found = resembling(order, before, domains, kinds)
    assert sorted(found) == sorted(order)
    assert stay(found, before) >= stay(order, before)
    was = dict(zip(groups(order, domains), kinds, strict=True))
    assert dict(zip(groups(found, domains), kinds, strict=True)) == was


@given(orders(), st.randoms(use_true_random=False))
def test_where_only_names_differ_every_rank_stays(
    drawn: tuple[list[int], list[int], list[int], list[int]], rng: Random
) -> None:
    """Domains of one kind, and the nodes of each, have changed places for nothing."""
    order, _, domains, kinds = drawn
    renamed: dict[int, int] = {}
    for kind in sorted(set(kinds)):
        its = [domain for domain, other in enumerate(kinds) if other == kind]
        for domain, other in zip(its, rng.sample(its, len(its)), strict=True):
            nodes, others = (
                [at for at, in_ in enumerate(domains) if in_ == d] for d in (domain, other)
            )
            renamed |= zip(nodes, rng.sample(others, len(others)), strict=True)
    before = [renamed[at] for at in order]
    assert resembling(order, before, domains, kinds) == before
