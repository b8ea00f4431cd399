"""What jobs ask of where they stand, against brute force: there is a place if any choice is one,
and it is the best of those there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fixtures import job, table
from fixtures.examples import examples
from fixtures.jobs import GPU, with_role
from fixtures.strategies import gangs
from railwright_scheduler.budget import WorkBudget
from railwright_scheduler.cluster import of
from railwright_scheduler.model import scale_up_domains
from railwright_scheduler.model.scale_up_domains import NO_SCALE_UP_DOMAIN
from railwright_scheduler.model.snapshot import (
    UNKNOWN_DOMAIN,
    Node,
    Snapshot,
    TierLimit,
    TopologyConstraints,
)
from railwright_scheduler.placement import split
from railwright_scheduler.placement.choose import choose
from railwright_scheduler.placement.constraints import (
    ANYWHERE,
    LevelLimit,
    ResolvedConstraints,
    capacity,
)
from railwright_scheduler.placement.domains import Domains
from railwright_scheduler.placement.heaviest import heaviest
from railwright_scheduler.policy.decide import decide
from railwright_topology.miscabling import MiscabledRail, Rails
from railwright_topology.source_reports import SCALE_UP


@st.composite
def limits(draw: st.DrawFn, finest: int) -> ResolvedConstraints:
    level = st.integers(0, finest)
    sizes = draw(st.sampled_from([(), (), (1,), (2,), (3,), (1, 2), (2, 4), (1, 3, 6), (2, 2)]))
    spreads = draw(st.lists(st.sampled_from([1, 2, 3]), max_size=2))
    return ResolvedConstraints(
        within=draw(level),
        segments=tuple(LevelLimit(draw(level), size) for size in sizes),
        spreads=tuple(LevelLimit(draw(level), most) for most in spreads),
    )


def satisfied(tree: Domains, nodes: Iterable[int], asked: ResolvedConstraints) -> bool:
    """Whether these nodes, ascending, are what was asked for."""
    chosen = [*nodes]
    where = [[int(level[node]) for level in tree.of_node] for node in chosen]
    runs = [
        (each, where[at : at + each.pods])
        for each in asked.segments
        for at in range(0, len(where), each.pods)
    ]
    return (
        len({path[asked.within] for path in where}) == 1
        and all(
            max(Counter(path[each.level] for path in where).values()) <= each.pods
            for each in asked.spreads
        )
        and all(len(run) == each.pods for each, run in runs)
        and all(len({path[each.level] for path in run}) == 1 for each, run in runs)
    )


def fitting(
    snapshot: Snapshot, data: st.DataObject
) -> tuple[Domains, NDArray[np.bool_], NDArray[np.int64], ResolvedConstraints, int] | None:
    """Domains, usable nodes, what is taken of them, and limits for so many nodes; None if so many
    have no place within these limits."""
    tree, eligible = of(snapshot).domains, np.ones(len(snapshot.nodes), dtype=np.bool_)
    asked, count = data.draw(limits(tree.finest)), snapshot.jobs[0].num_pods
    note(f"{table(snapshot)}\n{asked} {tree}")
    if count % asked.segment or capacity(tree, eligible, asked) < count:
        return None
    return tree, eligible, np.zeros(len(eligible), dtype=np.int64), asked, count


@settings(deadline=None, max_examples=examples(200))
@given(gangs(nodes_max=24, levels_max=4), st.data())
def test_placement_without_search_meets_the_constraints(
    snapshot: Snapshot, data: st.DataObject
) -> None:
    drawn = fitting(snapshot, data)
    if drawn is None:
        return
    tree, eligible, free_capacity, asked, count = drawn
    chosen = choose(tree, eligible, free_capacity, count=count, limits=asked, work=WorkBudget(0))
    assert len({*chosen.tolist()}) == count
    assert satisfied(tree, chosen, asked)


@settings(deadline=None, max_examples=examples(200))
@given(gangs(nodes_max=24, levels_max=4), st.data())
def test_costs_of_several_components_choose_equally(
    snapshot: Snapshot, data: st.DataObject
) -> None:
    drawn = fitting(snapshot, data)
    if drawn is None:
        return
    tree, eligible, free_capacity, asked, count = drawn
    one = choose(tree, eligible, free_capacity, count=count, limits=asked)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(split, "_INT64_SAFE", 2**12)
        several = choose(tree, eligible, free_capacity, count=count, limits=asked)
    assert several.tolist() == one.tolist()


def spans(tree: Domains, nodes: Iterable[int]) -> tuple[int, ...]:
    """The finest level first."""
    chosen = [*nodes]
    return tuple(len({int(level[node]) for node in chosen}) for level in reversed(tree.of_node[1:]))


@settings(deadline=None, max_examples=examples(300))
@given(gangs(nodes_max=9), st.data())
def test_a_place_is_found_if_there_is_one_and_is_the_nearest(
    snapshot: Snapshot, data: st.DataObject
) -> None:
    tree = of(snapshot).domains
    asked = data.draw(limits(tree.finest))
    count = snapshot.jobs[0].num_pods
    note(f"{table(snapshot)}\n{asked} {tree}")
    everyone = range(len(snapshot.nodes))
    able = [each for each in combinations(everyone, count) if satisfied(tree, each, asked)]
    eligible = np.ones(len(snapshot.nodes), dtype=np.bool_)
    whole = count % asked.segment == 0
    assert bool(able) == (whole and capacity(tree, eligible, asked) >= count)
    if not able:
        return
    chosen = choose(
        tree, eligible, np.zeros(len(eligible), dtype=np.int64), count=count, limits=asked
    )
    assert satisfied(tree, chosen, asked)
    best = min(spans(tree, each) for each in able)
    found = spans(tree, chosen)
    alone = len(tree.of_node) - 1 - tree.finest
    if asked.within and not asked.takes_all:
        return
    # Of several domains that could hold all, the one with the fewest racks is taken.
    assert found[alone : alone + 1] == best[alone : alone + 1]
    assert asked.within or found == best


@settings(deadline=None, max_examples=examples(200))
@given(gangs(nodes_max=9, levels_max=4), st.data())
def test_heaviest_nodes_have_the_largest_sums(snapshot: Snapshot, data: st.DataObject) -> None:
    drawn = fitting(snapshot, data)
    if drawn is None:
        return
    tree, eligible, _, asked, count = drawn
    weight = st.lists(st.integers(-2, 3), min_size=2, max_size=2)
    weights = np.array([data.draw(weight) for _ in eligible]).T
    chosen = heaviest(tree, eligible, weights, count=count, limits=asked)
    assert satisfied(tree, chosen, asked)
    sets = combinations(range(len(eligible)), count)
    able = [each for each in sets if satisfied(tree, each, asked)]
    best = max(weights[:, [*each]].sum(axis=1).tolist() for each in able)
    assert weights[:, chosen].sum(axis=1).tolist() == best


@settings(deadline=None)
@given(gangs(nodes_max=9), st.data())
def test_preferred_tier_is_used_where_capacity_allows(
    snapshot: Snapshot, data: st.DataObject
) -> None:
    tree = of(snapshot).domains
    rather = data.draw(st.integers(0, tree.finest))
    count = snapshot.jobs[0].num_pods
    eligible = np.ones(len(snapshot.nodes), dtype=np.bool_)
    free_capacity = np.zeros(len(eligible), dtype=np.int64)
    chosen = choose(
        tree, eligible, free_capacity, count=count, limits=ResolvedConstraints(rather=rather)
    )
    nearest = next(
        level
        for level in range(rather, -1, -1)
        if capacity(tree, eligible, ResolvedConstraints(within=level)) >= count
    )
    assert len({int(tree.of_node[nearest][node]) for node in chosen}) == 1


@settings(deadline=None)
@given(gangs(nodes_max=7), st.data())
def test_aligned_rails_are_had_if_any_choice_of_nodes_has_them(
    snapshot: Snapshot, data: st.DataObject
) -> None:
    odd = Rails((0, 1), (MiscabledRail(1, "", ""),))
    rails = st.sampled_from([None, Rails((0, 1)), Rails((0, 1)), Rails((1, 0)), Rails((0,)), odd])
    nodes = tuple(replace(node, rails=data.draw(rails)) for node in snapshot.nodes)
    spread = data.draw(st.integers(0, 2)) if snapshot.levels else 0
    spreads = (TierLimit(snapshot.levels[-1], spread),) if spread else ()
    asked = TopologyConstraints(spreads=spreads, aligned=True)
    job = with_role(snapshot.jobs[0], constraints=asked)
    (*found,) = decide(replace(snapshot, nodes=nodes, jobs=(job,))).admitted
    able = [
        each
        for each in combinations(nodes, job.num_pods)
        if all(node.rails is not None and not node.rails.miscabled for node in each)
        and len({node.rails for node in each}) == 1
        and (not spread or _is_spread(each, spread))
    ]
    note(f"{table(snapshot)}\n{[node.rails for node in nodes]}")
    assert bool(found) == bool(able)
    if found:
        chosen = {*found[0].nodes}
        assert chosen in [{node.name for node in each} for each in able]


def _is_spread(nodes: Iterable[Node], most: int) -> bool:
    """Whether no more than so many are in one domain of the finest level, which all are known. A
    node of no known domain is alone there, and further in."""
    paths = [
        tuple((domain, domain == UNKNOWN_DOMAIN and node.name) for domain in node.domains)
        for node in nodes
    ]
    complete = all(path[-1][0] != UNKNOWN_DOMAIN for path in paths)
    return complete and max(Counter(paths).values()) <= most


@st.composite
def scale_up_gangs(draw: st.DrawFn) -> Snapshot:
    """A gang constrained to scale-up domains, inside or around racks; some nodes are in none."""
    in_racks = draw(st.booleans())
    inner = [UNKNOWN_DOMAIN, "i0", "i1"] if in_racks else ["r0", "r1"]
    outer = ["r0", "r1", UNKNOWN_DOMAIN] if in_racks else ["i0", "i1", UNKNOWN_DOMAIN]
    paths = st.tuples(st.sampled_from(outer), st.sampled_from(inner))
    levels = ("rack", SCALE_UP) if in_racks else (SCALE_UP, "rack")
    complete = paths.map(
        lambda path: scale_up_domains.resolve_domains(
            levels, (path[0], path[1] and path[0] + path[1])
        )
    )
    domains = draw(st.lists(complete, min_size=1, max_size=8))
    count = draw(st.integers(1, len(domains)))
    size = draw(st.sampled_from([each for each in (1, 2, 3) if count % each == 0]))
    constraints = draw(
        st.sampled_from(
            [
                TopologyConstraints(required=SCALE_UP),
                TopologyConstraints(segments=(TierLimit(SCALE_UP, size),)),
                TopologyConstraints(spreads=(TierLimit(SCALE_UP, size),)),
                TopologyConstraints(
                    segments=(TierLimit(SCALE_UP, size),), spreads=(TierLimit(SCALE_UP, 2),)
                ),
                TopologyConstraints(required="rack", segments=(TierLimit(SCALE_UP, size),)),
            ]
        )
    )
    used = st.sampled_from([0, 0, 0, 8])
    return Snapshot(
        levels=levels,
        nodes=tuple(
            Node(f"n{at}", path, {GPU: 8}, {GPU: draw(used)}) for at, path in enumerate(domains)
        ),
        queues=("default",),
        jobs=(job("gang", replicas=count, per_pod={GPU: 8}, constraints=constraints),),
    )


@settings(deadline=None, max_examples=examples(150))
@given(scale_up_gangs())
def test_gang_gets_scale_up_domains_if_any_choice_does(
    snapshot: Snapshot,
) -> None:
    """If any choice of free nodes meets the constraint, the gang starts."""
    (pending_job,) = snapshot.jobs
    rack, scale_up = snapshot.levels.index("rack"), snapshot.levels.index(SCALE_UP)

    def are_so(nodes: tuple[Node, ...]) -> bool:
        constraints = pending_job.roles[0].constraints
        on = Counter(node.domains[scale_up] for node in nodes)
        if any(node.used[GPU] for node in nodes):
            return False
        spread = min((each.nodes for each in constraints.spreads), default=len(nodes))
        if (
            constraints.segment > 1 or constraints.spreads or constraints.required == SCALE_UP
        ) and NO_SCALE_UP_DOMAIN in on:
            return False
        if constraints.required == SCALE_UP and len(on) > 1:
            return False
        # Segments come out even, so scale-up domains of whole ones are enough.
        if constraints.segment > 1 and any(count % constraints.segment for count in on.values()):
            return False
        if max(on.values()) > spread:
            return False
        stands = {node.domains[: rack + 1] for node in nodes}
        alone = len(nodes) > 1 and any(UNKNOWN_DOMAIN in node.domains[: rack + 1] for node in nodes)
        return constraints.required != "rack" or (len(stands) == 1 and not alone)

    note(table(snapshot))
    able = [
        {node.name for node in each}
        for each in combinations(snapshot.nodes, pending_job.num_pods)
        if are_so(each)
    ]
    (*found,) = decide(snapshot).admitted
    assert bool(found) == bool(able)
    assert not found or {*found[0].nodes} in able


@given(gangs(nodes_max=9))
def test_without_limits_every_usable_node_counts(snapshot: Snapshot) -> None:
    tree = of(snapshot).domains
    eligible = np.arange(len(snapshot.nodes)) % 3 > 0
    assert capacity(tree, eligible, ANYWHERE) == capacity(
        tree, eligible, ResolvedConstraints(spreads=(LevelLimit(0, 10**6),))
    )
