"""Gangs of several roles: all pods are placed or none, within what nodes have and constraints say.

What is checked is written out here pod by pod, on drawn clusters with taken, tainted and
unavailable nodes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations
from random import Random

from hypothesis import assume, given, note, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from fixtures import GPU, cluster, job, node, outcome, table
from fixtures.attempts import entry
from fixtures.examples import examples
from fixtures.strategies import nodes
from railwright_scheduler import revalidation
from railwright_scheduler.attempt.ledger import EntryRole
from railwright_scheduler.model.decisions import Admit
from railwright_scheduler.model.shortages import NeverFits
from railwright_scheduler.model.snapshot import (
    Job,
    Node,
    Role,
    Snapshot,
    TierLimit,
    TopologyConstraints,
)
from railwright_scheduler.placement import domains
from railwright_scheduler.policy.decide import decide

LEVELS = ("block", "rack")
_REQUESTS = ({GPU: 1}, {GPU: 4, "cpu": 8_000}, {GPU: 8}, {"cpu": 48_000}, {"cpu": 1_000, "pods": 1})
_CONSTRAINTS = (
    TopologyConstraints(),
    TopologyConstraints(required="rack"),
    TopologyConstraints(required="block"),
    TopologyConstraints(spreads=(TierLimit("rack", 2),)),
    TopologyConstraints(required="block", spreads=(TierLimit("rack", 3),)),
    TopologyConstraints(segments=(TierLimit("rack", 2),), spreads=(TierLimit("block", 2),)),
    TopologyConstraints(segments=(TierLimit("rack", 2),), spreads=(TierLimit("block", 4),)),
    TopologyConstraints(spreads=(TierLimit("rack", 2), TierLimit("block", 3))),
)


@st.composite
def _roles(draw: DrawFn, name: str, shared: TopologyConstraints) -> Role:
    shares = draw(st.booleans())
    constraints = shared if shares else draw(st.sampled_from(_CONSTRAINTS))
    return Role(
        name=name,
        replicas=draw(st.integers(1, 4 // constraints.segment)) * constraints.segment,
        per_pod=draw(st.sampled_from(_REQUESTS)),
        constraints=constraints,
        shares_topology=shares,
    )


@st.composite
def _gangs(draw: DrawFn, jobs_max: int = 3) -> Snapshot:
    gangs = []
    for at in range(draw(st.integers(1, jobs_max))):
        shared = draw(st.sampled_from(_CONSTRAINTS))
        roles = tuple(draw(_roles(f"r{i}", shared)) for i in range(draw(st.integers(1, 4))))
        gangs.append(replace(job(f"j{at}"), roles=roles, submitted_s=at))
    count = draw(st.integers(1, 10))
    machines = tuple(draw(nodes(f"n{i}", len(LEVELS))) for i in range(count))
    return cluster(*machines, jobs=tuple(gangs), levels=LEVELS)


@settings(max_examples=examples(400))
@given(_gangs())
def test_admitted_gangs_fit_with_all_roles(snapshot: Snapshot) -> None:
    """No node is given away twice, pods of a role are on distinct nodes, and constraints hold."""
    note(table(snapshot))
    decided = decide(snapshot)
    note(outcome(decided))
    by_name = {each.name: each for each in snapshot.nodes}
    used = {name: Counter(each.used) for name, each in by_name.items()}
    for admit in decided.admitted:
        gang = next(each for each in snapshot.jobs if each.uid == admit.job_uid)
        assert len(admit.nodes) == gang.num_pods
        for role, pods in zip(gang.roles, gang.pod_ranges, strict=True):
            chosen = admit.nodes[pods]
            assert len(set(chosen)) == role.replicas
            for name in chosen:
                assert by_name[name].unavailable is None
                used[name].update(role.per_pod)
        check_topology(gang, admit, by_name)
    for name, amounts in used.items():
        allocatable = by_name[name].allocatable
        taken = {key for key, value in amounts.items() if value > by_name[name].used.get(key, 0)}
        assert all(amounts[key] <= allocatable.get(key, 0) for key in taken), (name, amounts)


@settings(max_examples=examples(200))
@given(_gangs())
def test_admitted_gang_keeps_its_constraints_at_once(snapshot: Snapshot) -> None:
    """Placement revalidation resolves tiers, domains and segments as the decision does."""
    by_name = {each.name: each for each in snapshot.nodes}
    finest = domains.finest_level(snapshot.nodes, len(LEVELS))
    tree = domains.of(domains.in_topology_order(snapshot.nodes), len(LEVELS))
    assert tree.finest == finest
    for admit in decide(snapshot).admitted:
        gang = next(each for each in snapshot.jobs if each.uid == admit.job_uid)
        spans = tuple(zip(LEVELS, admit.spans, strict=True))
        roles = tuple(EntryRole(each.name, each.replicas, each.per_pod) for each in gang.roles)
        planned = entry(nodes=admit.nodes, roles=roles, spans=spans)
        assert not revalidation.wider_spread(planned, by_name, LEVELS)
        assert not revalidation.broken_constraint(planned, gang, by_name, LEVELS, lambda: finest)


def test_roles_start_where_an_exhaustive_search_fits() -> None:
    """Of gangs that some assignment of pods to nodes satisfies, at most one in a hundred waits."""
    rng, fitting, missed = Random(20261125), 0, []
    for _ in range(1_000):
        free = [rng.randint(0, 8) for _ in range(rng.randint(1, 5))]
        roles = tuple(
            Role(rng.randint(1, 4), {GPU: rng.randint(1, 6)}, name=f"r{at}")
            for at in range(rng.randint(2, 4))
        )
        machines = [node(f"n{at}", used={GPU: 8 - left}) for at, left in enumerate(free)]
        is_admitted = bool(decide(cluster(*machines, jobs=(replace(job(), roles=roles),))).admitted)
        fits = _fits(roles, free)
        assert fits or not is_admitted, (free, roles)
        fitting += fits
        missed += [(free, roles)] * (fits and not is_admitted)
    assert fitting > 100
    assert len(missed) * 100 <= fitting, missed


def test_gang_never_fits_only_if_no_assignment_does() -> None:
    """Of gangs that no assignment to empty nodes satisfies, at most one in twenty waits for
    nodes."""
    rng, never, missed = Random(20261130), 0, []
    for _ in range(400):
        count = rng.randint(1, 4)
        roles = tuple(
            Role(rng.randint(1, 3), {GPU: rng.randint(1, 8)}, name=f"r{at}")
            for at in range(rng.randint(2, 4))
        )
        machines = [node(f"n{at}", used={GPU: rng.randint(0, 8)}) for at in range(count)]
        decided = decide(cluster(*machines, jobs=(replace(job(), roles=roles),)))
        fits = _fits(roles, [8] * count)
        is_never = [isinstance(wait.reason, NeverFits) for wait in decided.waiting] == [True]
        assert not (fits and is_never), (count, roles)
        never += not fits
        missed += [(count, roles)] * (not fits and not is_never)
    assert never > 100
    assert len(missed) * 20 <= never, missed


def test_gang_starts_if_one_domain_alone_holds_it() -> None:
    """The other domains of the level that it requires do not keep it from the one that does."""
    rng, fitting = Random(20261126), 0
    for _ in range(150):
        asked = rng.choice([each for each in _CONSTRAINTS if each.required])
        racks, size = rng.randint(4, 12), rng.randint(2, 8)
        machines = [
            node(f"n{rack}-{at}", f"b{rack // 4}", f"r{rack}", used={GPU: rng.choice([0, 3, 8, 8])})
            for rack in range(racks)
            for at in range(size)
        ]
        roles = tuple(
            Role(rng.randint(1, 3), {GPU: rng.choice([2, 4, 8])}, name=f"r{at}", constraints=asked)
            for at in range(rng.randint(2, 4))
        )
        snapshot = cluster(*machines, jobs=(replace(job(), roles=roles),), levels=LEVELS)
        depth = LEVELS.index(asked.required) + 1
        domain_nodes: dict[tuple[str, ...], list[Node]] = {}
        for each in machines:
            domain_nodes.setdefault(each.domains[:depth], []).append(each)
        alone = [replace(snapshot, nodes=tuple(its)) for its in domain_nodes.values()]
        if any(decide(each).admitted for each in alone):
            fitting += 1
            assert decide(snapshot).admitted, table(snapshot)
    assert fitting > 50


@settings(max_examples=examples(300))
@given(_gangs(jobs_max=1))
def test_waiting_gang_that_could_start_reserves_nodes(snapshot: Snapshot) -> None:
    """If it starts once all nodes are healthy and free, it reserves a node for each pod."""
    machines = tuple(replace(each, unavailable=None, taints=()) for each in snapshot.nodes)
    empty = tuple(replace(each, used={}) for each in machines)
    note(table(snapshot))
    assume(decide(replace(snapshot, nodes=empty)).admitted)
    decided = decide(replace(snapshot, nodes=machines))
    (gang,) = snapshot.jobs
    if not decided.admitted:
        assert len(decided.reservations[gang.uid]) == gang.num_pods


def _fits(roles: tuple[Role, ...], free: list[int]) -> bool:
    if not roles:
        return True
    need = roles[0].per_pod[GPU]
    able = [at for at, left in enumerate(free) if left >= need]
    return any(
        _fits(roles[1:], [left - need * (at in chosen) for at, left in enumerate(free)])
        for chosen in combinations(able, roles[0].replicas)
    )


def check_topology(gang: Job, admit: Admit, by_name: dict[str, Node]) -> None:
    shared = [
        pods for role, pods in zip(gang.roles, gang.pod_ranges, strict=True) if role.shares_topology
    ]
    groups = [
        (role.constraints, [pods])
        for role, pods in zip(gang.roles, gang.pod_ranges, strict=True)
        if not role.shares_topology
    ]
    if shared:
        its = next(role.constraints for role in gang.roles if role.shares_topology)
        groups.append((its, shared))
    for constraints, ranges in groups:
        chosen = [by_name[name] for pods in ranges for name in admit.nodes[pods]]
        if constraints.required:
            depth = LEVELS.index(constraints.required)
            assert domains.spans(chosen, len(LEVELS))[depth] == 1
        for segment in constraints.segments:
            depth = LEVELS.index(segment.tier) + 1
            for at in range(0, len(chosen), segment.nodes):
                run = chosen[at : at + segment.nodes]
                assert len({_domain(each, depth) for each in run}) == 1
        for spread in constraints.spreads:
            depth = LEVELS.index(spread.tier) + 1
            distinct = {each.name: each for each in chosen}.values()
            counts = Counter(_domain(each, depth) for each in distinct)
            assert max(counts.values()) <= spread.nodes


def _domain(each: Node, depth: int) -> tuple[str, ...]:
    path = each.domains[:depth]
    return (*path, each.name) if "" in path else path
