"""Topology constraints resolved to levels, as bounds on the number of pods in each domain.

Levels are numbered as in ``Domains``: 0 is the whole cluster. All constraints bound the number of
pods in each domain: no more than its parts may have together, no more than a spread allows, and
complete segments where segments must stay together. So each level's number follows from the one
below, and placement is the same knapsack with other numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from railwright_scheduler.arrays import Ints, Mask
from railwright_scheduler.placement.domains import Domains


class LevelLimit(NamedTuple):
    """A number of pods in each domain of a level."""

    level: int
    pods: int


class ResolvedConstraints(NamedTuple):
    """All pods are in one domain of level ``within``, and of level ``rather`` if one has capacity.
    Of ``segments`` each run of so many node ranks is in one domain of the level; each size divides
    the next one. Of ``spreads`` no domain of the level has more pods. All nodes have the rail
    assignment of number ``rails`` with correct cables; 0 does not require one. ``scale_up_only``
    takes only nodes of scale-up domains. (A tuple, as results are looked up by it for each job, and
    the hash of a dataclass takes several times as long.)"""

    within: int = 0
    rather: int = 0
    segments: tuple[LevelLimit, ...] = ()
    spreads: tuple[LevelLimit, ...] = ()
    rails: int = 0
    scale_up_only: bool = False

    @property
    def takes_all(self) -> bool:
        """Whether a gang may have all nodes of a domain, however many these are."""
        return not self.spreads and self.segment == 1

    @property
    def segment(self) -> int:
        """The size of the largest segments."""
        return max(each.pods for each in self.segments) if self.segments else 1

    def grain(self, level: int) -> int:
        """The unit of the pods of each domain of a level: each has a multiple of it."""
        return max((each.pods for each in self.segments if level <= each.level), default=1)


ANYWHERE = ResolvedConstraints()


def caps(domains: Domains, eligible: Mask, limits: ResolvedConstraints) -> tuple[Ints, ...]:
    """How many pods each domain of each level of the tree may have, each eligible node one."""
    takes_all, found = limits.takes_all, [domains.total(eligible.astype(np.int64), domains.finest)]
    for level in range(domains.finest, -1, -1):
        if level < domains.finest:
            found.insert(0, np.add.reduceat(found[0], domains.inner_bounds[level][:-1]))
        if not takes_all:
            for spread in limits.spreads:
                if level == spread.level:
                    found[0] = np.minimum(found[0], spread.pods)
            found[0] = found[0] // limits.grain(level) * limits.grain(level)
    if takes_all:
        return tuple(found)
    for level in range(1, domains.finest + 1):
        found[level] = _no_more_than_around(domains, level, found[level], found[level - 1])
    return tuple(found)


def level_caps(domains: Domains, eligible: Mask, limits: ResolvedConstraints, level: int) -> Ints:
    """The same for the domains of one level."""
    if limits.takes_all:
        return domains.total(eligible.astype(np.int64), level)
    return caps(domains, eligible, limits)[level]


def capacity(domains: Domains, eligible: Mask, limits: ResolvedConstraints) -> int:
    """How many pods a gang can have at most."""
    if limits.takes_all and not limits.within:
        return int(np.count_nonzero(eligible))
    return int(level_caps(domains, eligible, limits, limits.within).max(initial=0))


def _no_more_than_around(domains: Domains, level: int, own: Ints, around: Ints) -> Ints:
    """A domain has no more than the one that it lies in; of several in one that may have a single
    pod, only the first may."""
    first = domains.inner_bounds[level - 1][:-1]
    parent = np.repeat(np.arange(len(around)), np.diff(np.append(first, len(own))))
    found = np.minimum(own, around[parent])
    alone = (around[parent] == 1) & (found > 0)
    before = np.cumsum(alone) - alone
    earlier = before - before[first][parent]
    found[alone & (earlier > 0)] = 0
    return found
