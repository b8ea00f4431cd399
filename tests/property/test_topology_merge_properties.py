"""Any sources at all: what comes out is nested, tells whatever differs, and loses nobody."""

from __future__ import annotations

import itertools
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.examples import examples
from railwright_topology import topology_merge
from railwright_topology.source_reports import SCALE_UP, Provenance, SourceReport
from railwright_topology.topology_merge import MergedTopology

NODES = [f"n{number:02d}" for number in range(16)]


@st.composite
def source_reports(draw: st.DrawFn, source: str) -> SourceReport:
    """Nested tiers over some of the nodes, and maybe scale-up domains."""
    size = draw(st.sampled_from((2, 3, 4)))
    heights = range(1, draw(st.integers(1, 3)) + 1)
    tiers = [{node: at // size**height for at, node in enumerate(NODES)} for height in heights]
    moved = draw(st.dictionaries(st.sampled_from(NODES), st.sampled_from(NODES), max_size=3))
    nodes = draw(st.sets(st.sampled_from(NODES), min_size=1))
    scale_up = draw(st.sampled_from((0, 0, 2, 3, 4, 8)))
    return SourceReport(
        source,
        draw(st.sampled_from(Provenance)),
        tuple(
            {node: f"{source}{tier[moved.get(node, node)]}" for node in sorted(nodes)}
            for tier in tiers
        ),
        {
            node: f"{source}{NODES.index(moved.get(node, node)) // scale_up}"
            for node in sorted(nodes)
            if scale_up
        },
    )


SITES = st.integers(1, 4).flatmap(
    lambda count: st.tuples(*(source_reports(source) for source in "abcd"[:count]))
)


def placed(found: MergedTopology, node: str) -> list[str]:
    """Its domains, where it has any, from the nearest tier outwards."""
    return [tier.domains.get(node, "") for tier in found.tiers]


@settings(max_examples=examples(300))
@given(SITES, st.randoms(use_true_random=False))
def test_the_order_of_sources_changes_nothing(
    site: tuple[SourceReport, ...], random: Random
) -> None:
    assert topology_merge.of(random.sample(site, len(site))) == topology_merge.of(site)


@settings(max_examples=examples(300))
@given(SITES)
def test_each_domain_lies_in_one_of_each_tier_around_it(site: tuple[SourceReport, ...]) -> None:
    found = topology_merge.of(site)
    for inner, outer in itertools.combinations(found.tiers, 2):
        for domain in {*inner.domains.values()}:
            nodes = [node for node, its in inner.domains.items() if its == domain]
            around = {outer.domains[node] for node in nodes if node in outer.domains}
            assert len(around) <= 1, (inner.name, domain, outer.name, around)


@settings(max_examples=examples(300))
@given(SITES)
def test_sole_source_is_believed_and_no_node_is_lost(
    site: tuple[SourceReport, ...],
) -> None:
    found = topology_merge.of(site)
    unused = {*found.unmatched}
    differing = {(conflict.source, conflict.node) for conflict in found.conflicts}
    for source_report in site:
        for tier, domains in enumerate(source_report.tiers):
            if (source_report.source, source_report.name(tier)) in unused:
                continue
            for node in domains:
                assert any(placed(found, node)) or (source_report.source, node) in differing


@settings(max_examples=examples(300))
@given(SITES)
def test_conflict_has_the_merged_domain_of_its_node(site: tuple[SourceReport, ...]) -> None:
    found = topology_merge.of(site)
    tiers = {tier.name: tier for tier in (*found.tiers, found.scale_up_domains) if tier}
    for conflict in found.conflicts:
        assert tiers[conflict.level].domains.get(conflict.node, "") == conflict.held
        if not conflict.held and not conflict.theirs:
            # A domain without a counterpart, and a node that no counted source has.
            reported = f"{conflict.reported}, which no other has; it is in none of them"
            assert reported in topology_merge.describe(conflict)
        else:
            assert conflict.theirs != conflict.held


@given(source_reports("a"))
def test_single_source_is_used_unchanged(source_report: SourceReport) -> None:
    found = topology_merge.of([source_report])
    if not found.conflicts:
        network = [tier for tier in found.tiers if tier.name != SCALE_UP]
        assert [tier.domains for tier in network] == list(source_report.tiers)
        assert (
            found.scale_up_domains.domains if found.scale_up_domains else {}
        ) == source_report.scale_up_domains
    assert not any(tier.filled for tier in found.tiers)
