"""Of orders that differ only in which of equal domains and nodes is which, the one most like where
ranks were before.

What is found by bytes and seconds calls no domain by its name: two racks may have changed places
for nothing. Each domain's ranks go to that of its equals where most of them were, the most first,
and inside of a domain each rank stays on its node.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from railwright_scheduler.arrays import Ints


def minimize_movement(order: Ints, before: Ints, domains: Ints, kinds: Sequence[Hashable]) -> Ints:
    """``order[r]`` and ``before[r]`` are nodes of rank r, -1 for none of these; ``domains`` has
    that of each node, and domains of one of the ``kinds`` are equal, in their number of nodes too.
    """
    where, was = domains[order], np.where(before < 0, -1, domains[before])
    here = was >= 0
    pairs, shared = np.unique(where[here] * len(kinds) + was[here], return_counts=True)
    most_first = sorted(zip((-shared).tolist(), pairs.tolist(), strict=True))
    target = _matched([divmod(pair, len(kinds)) for _, pair in most_first], kinds)
    found = np.full(len(order), -1, dtype=np.int64)
    stays = here & (target[where] == was)
    found[stays] = before[stays]
    taken = np.zeros(len(order), dtype=np.bool_)
    taken[found[stays]] = True
    for domain in range(len(kinds)):
        ranks = np.flatnonzero((target[where] == domain) & ~stays)
        found[ranks] = np.flatnonzero((domains == domain) & ~taken)
    more = np.count_nonzero(found == before) > np.count_nonzero(order == before)
    return found if more else order


def _matched(shared: Sequence[tuple[int, int]], kinds: Sequence[Hashable]) -> Ints:
    """For each domain the one whose place its ranks take, each once: of those it ``shared`` ranks
    with the first that is its equal and still free, else itself, else any."""
    target = np.full(len(kinds), -1, dtype=np.int64)
    free = [True] * len(kinds)
    for one, other in [*shared, *((domain, domain) for domain in range(len(kinds)))]:
        if target[one] < 0 and free[other] and kinds[one] == kinds[other]:
            target[one], free[other] = other, False
    left: dict[Hashable, list[int]] = {}
    for domain, kind in enumerate(kinds):
        if free[domain]:
            left.setdefault(kind, []).append(domain)
    for domain in np.flatnonzero(target < 0).tolist():
        target[domain] = left[kinds[domain]].pop(0)
    return target
