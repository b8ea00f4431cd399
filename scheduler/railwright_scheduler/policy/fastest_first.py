"""Select fast nodes first, among node sets that span equally few domains.

Starting from one set, the search tries sets without its slow nodes, without its slowest ones, and
without all nodes that are as slow as these, and takes one that spans as few domains of each level.
Without slow nodes there is one choice. When the work budget is spent, the best set so far is taken.

Dropped: a price for slow nodes in the choice of domains. It would have to be weighed against
leaving large domains whole, which matters to small jobs every day, while slow nodes are few.
"""

from __future__ import annotations

from collections.abc import Iterator

from railwright_scheduler import placement
from railwright_scheduler.arrays import Ints, Mask
from railwright_scheduler.budget import CALL, SORTED, WorkBudget
from railwright_scheduler.placement import ResolvedConstraints
from railwright_scheduler.placement.domains import Domains

OFTEN = 4
"""Attempts to improve on the best set so far."""

_CHOICE = 50 * CALL
"""Work of one more choice, beside that of its split and of sorting all nodes."""


def choose_fastest(
    domains: Domains,
    allowed: Mask,
    free_capacity: Ints,
    slowdown: Ints,
    count: int,
    limits: ResolvedConstraints,
    work: WorkBudget,
) -> Ints:
    """As ``placement.choose``. Among equal domains those with the lowest ``free_capacity`` are
    chosen first; ``slowdown`` is the degree of each node."""

    def choice(nodes: Mask) -> Ints:
        return placement.choose(
            domains, nodes, free_capacity, count=count, limits=limits, work=work
        )

    def slow(nodes: Ints) -> tuple[int, int]:
        return int(slowdown[nodes].max()), int(slowdown[nodes].sum())

    best = choice(allowed)
    with work.search(100):
        for _ in range(OFTEN):
            if not slowdown[best].any():
                break
            masks = [*_without_slow(best, allowed, slowdown)]
            work.spend(len(masks) * (_CHOICE + SORTED * len(allowed)))
            able = (mask for mask in masks if placement.capacity(domains, mask, limits) >= count)
            others = [choice(mask) for mask in able]
            as_near = [nodes for nodes in others if domains.spans(nodes) == domains.spans(best)]
            found = min(as_near, key=slow, default=best)
            if slow(found) >= slow(best):
                break
            best = found
    return best


def _without_slow(nodes: Ints, allowed: Mask, slowdown: Ints) -> Iterator[Mask]:
    """All that are allowed but the slow ones of these, and but the slowest of these; and all that
    are not as slow as the slowest of these."""
    slow = slowdown[nodes]
    for left_out in (slow > 0, slow == slow.max()):
        mask = allowed.copy()
        mask[nodes[left_out]] = False
        yield mask
    yield allowed & (slowdown < slow.max())
