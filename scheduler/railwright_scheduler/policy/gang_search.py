"""Search for the nodes of all roles of a gang, to start it or to reserve for it.

- Pods of one role are on distinct nodes; pods of two roles may share a node. So each role is placed
  beside what the roles before it take.
- The job's topology constraints hold for the pods of all roles that share them: one domain of the
  required level, one rail order, and ``spread`` counts the nodes of all their pods. Whole segments
  of each role are whole segments of the gang.
- A gang starts in as few domains as the search finds, in one of its preferred tier if that holds
  it: it is tried on the nodes that ``GangDomains`` names before all nodes. A reservation takes the
  nodes nearest to starting, wherever they are.
- The role with the fewest nodes to spare is placed first. If a later role does not fit beside it,
  the gang is placed again with that role first; if one domain is too small for all, in the next
  domain that could hold each of them.
- Each role is placed as near to the roles before it as it fits. If the gang does not fit that way,
  each role takes the nodes on which it displaces the fewest of the roles after it.

Placing roles one after the other may miss a placement that a joint search would find: with several
resources that search is a vector bin packing problem, which is NP-hard.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from railwright_scheduler.arrays import Ints, Mask
from railwright_scheduler.budget import SEARCH_WORK, WorkBudget
from railwright_scheduler.cluster import Cluster, Taken
from railwright_scheduler.placement.constraints import ResolvedConstraints, capacity
from railwright_scheduler.placement.domains import places
from railwright_scheduler.policy.candidate import RoleDemand
from railwright_scheduler.policy.gang_domains import Allowed, GangDomains, count_role

ORDERS_MAX, DOMAINS_MAX, RAIL_ORDERS_MAX = 3, 3, 3
"""Orders of the roles, domains besides the best, and rail orders that are tried for a gang."""

LEFT_OUT_MAX = 4
"""Domains of a level, those with the fewest nodes of a gang, that it is tried without."""

Choose = Callable[[int, ResolvedConstraints, Mask, Sequence[Taken]], Ints]
"""Of these nodes, which have capacity for it, those that the role of this number gets."""


@dataclass(frozen=True, slots=True)
class UnplacedRole:
    """The number of the role that does not fit beside the others, and the nodes left for it."""

    number: int
    free: int


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """How a gang is placed: the ``order`` of its roles, the constraints of each, the ``domain``
    that the job's constraints are met in (the first role's if None), the ``subset`` of the nodes
    (all if None), and whether roles spare the nodes of later ones."""

    order: Sequence[int]
    limits: Sequence[ResolvedConstraints]
    domain: Mask | None = None
    subset: Mask | None = None
    spares: bool = False


Placed = tuple[Trial, tuple[Ints, ...]]
"""A trial that places a gang, with the nodes (columns) of each role."""


@dataclass(slots=True)
class PartialGang:
    """The roles placed so far, by their numbers; ``shared`` are the nodes of those that share the
    job's topology constraints."""

    nodes: dict[int, Ints] = field(default_factory=dict)
    taken: list[Taken] = field(default_factory=list)
    shared: list[Ints] = field(default_factory=list)

    def add(self, number: int, demand: RoleDemand, nodes: Ints) -> None:
        """Add a role with its nodes (columns)."""
        self.nodes[number] = nodes
        self.taken.append(demand.taken(nodes))
        if demand.role.shares_topology:
            self.shared.append(nodes)


class GangSearch:
    """The search for one gang of several roles, which counts its work as ``searched``. If it
    ``is_start``, the fewest domains come first, and of the tier that the job prefers one."""

    def __init__(
        self,
        cluster: Cluster,
        demands: Sequence[RoleDemand],
        allowed: Allowed,
        choose: Choose,
        work: WorkBudget,
        *,
        is_start: bool,
    ) -> None:
        self._cluster = cluster
        self._demands = demands
        self._allowed = allowed
        self._choose = choose
        self._work = work
        self._is_start = is_start
        self._end = work.searched + SEARCH_WORK

    def find(self, limits: Sequence[ResolvedConstraints]) -> Placed | UnplacedRole:
        """A trial that places all roles under these constraints, with their nodes: the first one,
        or for a start the one in the fewest domains of the first ones of all rail orders. If none
        does within ``SEARCH_WORK``: the role that did not fit in the first trial without narrower
        constraints. Of the rail orders of ``limits``, all roles that share the job's constraints
        have the same one."""
        for narrowed in self._preferred_first(limits):
            placed, unplaced = list[Placed](), list[UnplacedRole | None]()
            for its in self._one_rail_order(narrowed):
                if (unplaced and self._is_spent) or (placed and not self._is_start):
                    break
                found = self._find_under(its, is_narrowed=narrowed is not limits)
                if isinstance(found, tuple):
                    placed.append(found)
                else:
                    unplaced.append(found)
            if len(placed) > 1:
                # As ``NodeSelector.best_way`` compares them for a gang of one role.
                return min(placed, key=lambda each: self._spans(each[1])[::-1])
            if placed:
                return placed[0]
        assert unplaced[0] is not None
        return unplaced[0]

    @property
    def _is_spent(self) -> bool:
        return self._work.searched >= self._end

    def _find_under(
        self, limits: Sequence[ResolvedConstraints], *, is_narrowed: bool
    ) -> Placed | UnplacedRole | None:
        """The first trial under these constraints that places all roles; else the role that did not
        fit in the first trial on all nodes, if there was one."""
        order, unplaced = self._scarcest_first(limits), list[UnplacedRole]()
        domains = GangDomains(
            self._cluster, self._demands, self._allowed, self._work, order, limits
        )
        for trial in self._trials(domains, order, limits, is_narrowed=is_narrowed):
            if unplaced and self._is_spent:
                break
            found = self._place_in_any_order(trial)
            if not isinstance(found, UnplacedRole):
                return self._in_fewer_domains(domains, *found)
            if trial.subset is None:
                unplaced.append(found)
        return unplaced[0] if unplaced else None

    def _preferred_first(
        self, limits: Sequence[ResolvedConstraints]
    ) -> Iterator[Sequence[ResolvedConstraints]]:
        """The constraints in one domain of the tier that the job prefers, then of coarser ones, at
        last as they are."""
        shared = [at for at, each in enumerate(self._demands) if each.role.shares_topology]
        if self._is_start and len(shared) > 1:
            its = limits[shared[0]]
            for level in range(its.rather, its.within, -1):
                is_scale_up = level == its.rather == self._cluster.scale_up_level
                yield [
                    each._replace(within=level, scale_up_only=each.scale_up_only or is_scale_up)
                    if at in shared
                    else each
                    for at, each in enumerate(limits)
                ]
        yield limits

    def _trials(
        self,
        domains: GangDomains,
        order: Sequence[int],
        limits: Sequence[ResolvedConstraints],
        *,
        is_narrowed: bool,
    ) -> Iterator[Trial]:
        """The trials under these constraints. Under narrower ones than the job has: none if no
        domain could hold it."""
        could_hold = False
        for nodes in domains.fewest() if self._is_start else ():
            could_hold = True
            yield Trial(order, limits, subset=nodes)
        if is_narrowed and not could_hold:
            return
        if not is_narrowed:
            yield Trial(order, limits)
        for domain in itertools.islice(domains.whole(), DOMAINS_MAX):
            yield Trial(order, limits, domain)

    def _place_in_any_order(self, trial: Trial) -> Placed | UnplacedRole:
        """The trial that places the gang, with its nodes: in the order of this one, then, unless it
        is about the fewest domains, with the role first that did not fit. If none does: the role
        that did not fit in this one."""
        orders_max = ORDERS_MAX if trial.subset is None else 1
        orders, unplaced = [trial.order], list[UnplacedRole]()
        for order in orders:
            for spares in (False, True):
                if unplaced and self._is_spent:
                    return unplaced[0]
                tried = replace(trial, order=order, spares=spares)
                nodes = self.place(tried, self._choose)
                if not isinstance(nodes, UnplacedRole):
                    return tried, nodes
                unplaced.append(nodes)
                first = nodes.number
                other = [first, *(number for number in order if number != first)]
                if other not in orders and len(orders) < orders_max:
                    orders.append(other)
        return unplaced[0]

    def _in_fewer_domains(
        self, domains: GangDomains, trial: Trial, nodes: tuple[Ints, ...]
    ) -> Placed:
        """The trial, or one that leaves out domains of it, as long as there is one."""
        found: Placed = trial, nodes
        is_better = self._is_start and trial.subset is not domains.as_of_one_role
        fewest = self._spans(nodes) if is_better else ()
        while is_better:
            is_better = False
            for subset in self._without_one_domain(domains, found[1]):
                if self._is_spent:
                    break
                other = self._place_in_any_order(replace(trial, subset=subset))
                if not isinstance(other, UnplacedRole) and self._spans(other[1]) < fewest:
                    found, fewest, is_better = other, self._spans(other[1]), True
                    break
        return found

    def _spans(self, nodes: Sequence[Ints]) -> tuple[int, ...]:
        """The number of domains of the gang at each level of the tree, the finest first."""
        domains = self._cluster.domains
        return domains.spans(np.unique(np.concatenate(nodes)))[: domains.finest][::-1]

    def _without_one_domain(self, domains: GangDomains, nodes: Sequence[Ints]) -> Iterator[Mask]:
        """The domains of the gang without one of those with the fewest nodes of it, at each level
        at which fewer could hold it."""
        columns, tree = np.unique(np.concatenate(nodes)), self._cluster.domains
        for level in range(tree.finest, 0, -1):
            used, counts = np.unique(tree.of_node[level][columns], return_counts=True)
            if len(used) > domains.least(level):
                for domain in used[np.argsort(counts, kind="stable")][:LEFT_OUT_MAX].tolist():
                    yield domains.filled(tree.nodes_in(used[used != domain], level))

    def place(self, trial: Trial, choose: Choose) -> tuple[Ints, ...] | UnplacedRole:
        """The nodes of each role (columns, as chosen), or the first that does not fit."""
        gang = PartialGang()
        for position, number in enumerate(trial.order):
            demand, limits = self._demands[number], trial.limits[number]
            later = trial.order[position + 1 :] if trial.spares else ()
            count_role(self._work, self._cluster, limits, spared=len(later))
            allowed = self._allowed(number, limits, gang.taken)
            if demand.role.shares_topology:
                for nodes in (trial.domain, trial.subset):
                    allowed = allowed if nodes is None else allowed & nodes
                allowed = self._beside_shared(allowed, limits, gang.shared)
            free = capacity(self._cluster.domains, allowed, limits)
            if free < demand.role.replicas:
                return UnplacedRole(number, free)
            if later:
                allowed = self._sparing(allowed, number, later, trial.limits, gang)
            near = self._nearest(allowed, limits, gang, demand.role.replicas)
            gang.add(number, demand, choose(number, limits, near, gang.taken))
        return tuple(gang.nodes[number] for number in range(len(self._demands)))

    def _one_rail_order(
        self, limits: Sequence[ResolvedConstraints]
    ) -> Iterator[Sequence[ResolvedConstraints]]:
        """The constraints of each role, with one rail order for all roles that share the job's:
        that of the first of them, then the others that one of them could start under, those first
        that leave the most nodes to the role with the fewest."""
        demands = self._demands
        shared = [at for at, demand in enumerate(demands) if demand.role.shares_topology]
        chosen = [limits[number].rails for number in shared]
        possible = [way.rails for number in shared for way in demands[number].ways]
        first, *others = [*dict.fromkeys([*chosen, *possible])] or [0]
        if others:
            spare = np.min([self._spare_by_rails(number, limits[number]) for number in shared], 0)
            others.sort(key=lambda rails: -int(spare[rails]))
        for rails in [first, *others[: RAIL_ORDERS_MAX - 1]]:
            yield [
                its._replace(rails=rails) if demand.role.shares_topology else its
                for demand, its in zip(demands, limits, strict=True)
            ]

    def _spare_by_rails(self, number: int, limits: ResolvedConstraints) -> Ints:
        """How many nodes of each rail order the role could have beyond those that it needs."""
        allowed = self._allowed(number, limits._replace(rails=0), ())
        return self._cluster.by_rails(allowed) - self._demands[number].role.replicas

    def _scarcest_first(self, limits: Sequence[ResolvedConstraints]) -> list[int]:
        """The roles by how many nodes they have to spare."""

        def spare(number: int) -> tuple[int, int]:
            allowed = self._allowed(number, limits[number], ())
            return int(np.count_nonzero(allowed)) - self._demands[number].role.replicas, number

        return sorted(range(len(self._demands)), key=spare)

    def _beside_shared(
        self, allowed: Mask, limits: ResolvedConstraints, shared: Sequence[Ints]
    ) -> Mask:
        """Of these nodes those that the job's constraints leave once pods of earlier roles are on
        the ``shared`` nodes: in their domain of the required level, and in domains that have such
        nodes no more others than the spread leaves."""
        domains = self._cluster.domains
        if shared and limits.within:
            of_node = domains.of_node[limits.within]
            allowed = allowed & (of_node == of_node[shared[0][0]])
        if not shared or not limits.spreads:
            return allowed
        nodes, others = np.unique(np.concatenate(list(shared))), allowed.copy()
        others[nodes] = False
        for spread in sorted(limits.spreads, key=lambda each: -each.level):
            of_node = domains.of_node[spread.level]
            used = np.bincount(of_node[nodes], minlength=int(of_node.max(initial=0)) + 1)
            columns = np.flatnonzero(others & (used > 0)[of_node])
            columns = self._whole_segments_first(columns, limits)
            columns = columns[np.argsort(of_node[columns], kind="stable")]
            owner = of_node[columns]
            surplus = columns[places(owner) >= (spread.pods - used)[owner]]
            allowed = allowed.copy()
            allowed[surplus] = others[surplus] = False
        return allowed

    def _whole_segments_first(self, columns: Ints, limits: ResolvedConstraints) -> Ints:
        """These nodes (ascending, so that those of a domain are together), with those that make up
        whole segments before the rest, so that a cut leaves as many segments as it can."""
        whole = columns
        for segment in sorted(limits.segments, key=lambda each: -each.level):
            owner = self._cluster.domains.of_node[segment.level][whole]
            kept = np.bincount(owner) // segment.pods * segment.pods
            whole = whole[places(owner) < kept[owner]]
        return np.concatenate([whole, np.setdiff1d(columns, whole)])

    def _sparing(
        self,
        allowed: Mask,
        number: int,
        later: Sequence[int],
        limits: Sequence[ResolvedConstraints],
        gang: PartialGang,
    ) -> Mask:
        """Of these nodes those on which the fewest later roles lose their place, as many as the
        role needs; all if these do not meet its constraints."""
        demand = self._demands[number]
        columns = np.flatnonzero(allowed)
        beside = [*gang.taken, demand.taken(columns)]
        lost = np.zeros(len(columns), dtype=np.int64)
        for other in later:
            before = self._allowed(other, limits[other], gang.taken)
            after = self._allowed(other, limits[other], beside)
            lost += (before & ~after)[columns]
        chosen = np.zeros_like(allowed)
        chosen[columns[np.argsort(lost, kind="stable")[: demand.role.replicas]]] = True
        free = capacity(self._cluster.domains, chosen, limits[number])
        return chosen if free >= demand.role.replicas else allowed

    def _nearest(
        self, allowed: Mask, limits: ResolvedConstraints, gang: PartialGang, count: int
    ) -> Mask:
        """Of these nodes those in the domains of the roles before, at the finest level at which
        they suffice."""
        if not gang.nodes:
            return allowed
        domains = self._cluster.domains
        nodes = np.concatenate(list(gang.nodes.values()))
        for level in range(domains.finest, 0, -1):
            near = allowed & domains.nodes_in(domains.of_node[level][nodes], level)
            if capacity(domains, near, limits) >= count:
                return near
        return allowed
