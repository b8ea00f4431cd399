"""Which collectives a network's switches reduce (SHARP: Graham et al., 2020), by the nodes of
ranks.

Switches reduce for a group if all of its traffic stays within one domain in which every switch can.
The slowest group of a communicator decides, so it counts only if this holds for all groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from railwright_scheduler.arrays import Ints, Mask
from railwright_scheduler.budget import CALL, ELEMENT, SORTED, UNLIMITED, WorkBudget
from railwright_scheduler.communication import grid
from railwright_scheduler.communication.graph import Collective, Communicator


class NetworkReduction:
    """The communicators that reduce, each with the node ranks of its groups; empty without a domain
    that reduces. ``tiers`` have the domain of each node, and which of them reduce."""

    def __init__(
        self,
        communicators: Iterable[Communicator],
        per_node: int,
        tiers: Sequence[tuple[Ints, Mask]],
        work: WorkBudget = UNLIMITED,
    ) -> None:
        self._work = work
        self._tiers = [(domains, reduces) for domains, reduces in tiers if reduces.any()]
        self._groups: dict[str, Ints] = {}
        for each in communicators if self._tiers else ():
            if any(its.collective is Collective.ALL_REDUCE for its in each.traffic):
                rows = each.grid.ranks // each.ranks
                work.spend(CALL + 3 * ELEMENT * each.grid.ranks + 2 * SORTED * rows)
                groups, _ = grid.distinct_rows(each.grid.groups(*each.axes) // per_node)
                self._groups[each.name] = groups

    def by_switches(self, order: Ints) -> frozenset[str]:
        """The communicators whose sums switches take over if ``order[r]`` is the node of node rank
        ``r``."""
        for groups in self._groups.values():
            self._work.spend(CALL + ELEMENT * groups.size * len(self._tiers))
        return frozenset(
            name for name, groups in self._groups.items() if self._are_contained(order[groups])
        )

    def _are_contained(self, groups: Ints) -> bool:
        contained = np.zeros(len(groups), dtype=np.bool_)
        for tier, reduces in self._tiers:
            domains = tier[groups]
            contained |= (domains == domains[:, :1]).all(axis=1) & reduces[domains[:, 0]]
        return bool(contained.all())
