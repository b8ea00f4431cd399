"""A bound on what the roles of a gang could have beside each other on the empty cluster.

Problem: each role by itself fits, and all together do not. That is NP-hard to decide, and a search
that finds nothing proves nothing.

Idea: each node is given the set of roles that is best for one resource, as if there were enough
pods of each. What all nodes hold that way is at least what they hold in any placement. It is
compared for all roles, for each two and for each three.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from railwright_scheduler.arrays import Ints, Mask
from railwright_scheduler.budget import CALL, ELEMENT, WorkBudget
from railwright_scheduler.cluster import Cluster
from railwright_scheduler.model.shortages import PODS, JointShortage
from railwright_scheduler.model.snapshot import Role
from railwright_scheduler.policy.candidate import RoleDemand

KINDS_MAX = 64
"""Kinds of nodes that are compared. A site with more has no bound."""

KIND = 50
"""Work of a node, for each of its amounts, to find the kinds of nodes."""

_SUM_BITS = 40
"""Of an amount of a node, so that the sum over all nodes stays inside int64."""


@dataclass(frozen=True, slots=True)
class JointBound:
    """The ``most`` of a resource that all nodes could give to these roles (by their numbers), whose
    pods request ``per_pod`` of it."""

    roles: tuple[int, ...]
    resource: str
    per_pod: tuple[int, ...]
    most: int

    def shortage(self, roles: Sequence[Role]) -> JointShortage | None:
        """What the nodes could not hold of the pods of these roles; None if that is not known."""
        replicas = [roles[at].replicas for at in self.roles]
        need = sum(map(operator.mul, replicas, self.per_pod))
        if need <= self.most:
            return None
        return JointShortage(
            tuple(roles[at].name for at in self.roles), self.resource, need, self.most
        )


def joint_bounds(
    cluster: Cluster, demands: Sequence[RoleDemand], work: WorkBudget
) -> list[JointBound]:
    """What the nodes, empty and healthy, could give at most to some of these roles, however many
    pods they have."""
    able = np.array([cluster.meant(each.signature.candidates, each.any_rails) for each in demands])
    rows = sorted({row for each in demands for row in each.signature.request.rows.tolist()})
    names = [PODS, *(name for row in rows for name, at in cluster.rows.items() if at == row)]
    needs = np.array([_need(each, rows) for each in demands])
    amounts = np.vstack([np.full(able.shape[1], len(demands)), cluster.allocatable[rows]])
    work.searched += able.shape[1] * (len(names) + len(demands)) * KIND
    kinds, of_node = np.unique(np.vstack([able, amounts]), axis=1, return_inverse=True)
    if kinds.shape[1] > KINDS_MAX:
        return []
    sets = _role_sets(needs, kinds[len(demands) :], kinds[: len(demands)] > 0)
    found = []
    for chosen in _compared(len(demands)):
        starts = cluster.domains.bounds[_level(demands, chosen)][:-1]
        for column, name in enumerate(names):
            work.searched += CALL + ELEMENT * sets.size
            weights = np.where(np.isin(np.arange(len(demands)), chosen), needs[:, column], 0)
            best = np.where(sets, _sums(weights[:, np.newaxis]), 0).max(axis=0)
            shift = max(0, int(best.max()).bit_length() - _SUM_BITS)
            per_node = -(-best >> shift)[of_node.reshape(-1)]
            most = int(np.add.reduceat(per_node, starts).max()) << shift
            found.append(JointBound(chosen, name, tuple(weights[[*chosen]].tolist()), most))
    return found


def _need(demand: RoleDemand, rows: Sequence[int]) -> list[int]:
    """One pod, and what it requests of each of these resources."""
    request = demand.signature.request
    needs = dict(zip(request.rows.tolist(), request.need[:, 0].tolist(), strict=True))
    return [1, *(needs.get(row, 0) for row in rows)]


def _level(demands: Sequence[RoleDemand], chosen: Sequence[int]) -> int:
    """The level of which one domain has to hold all of the chosen roles."""
    shared = all(demands[at].role.shares_topology for at in chosen)
    return demands[chosen[0]].largest.within if shared else 0


def _compared(roles: int) -> Iterator[tuple[int, ...]]:
    for size in sorted({roles, 2, min(3, roles)}, reverse=True):
        yield from combinations(range(roles), size)


def _sums(amounts: Ints) -> Ints:
    """The sum of the amounts (roles x columns) of each set of roles, numbered by its bits."""
    sums = np.zeros((1, amounts.shape[1]), dtype=np.int64)
    for row in amounts:
        sums = np.concatenate([sums, sums + row])
    return sums


def _role_sets(needs: Ints, amounts: Ints, able: Mask) -> Mask:
    """Which sets of roles (rows) could be on a node of each kind, one pod of each role."""
    sums = _sums(needs)[:, :, np.newaxis]
    unable: Mask = _sums((~able).astype(np.int64)) > 0
    fits: Mask = np.all(sums <= amounts, axis=1)
    return fits & ~unable
