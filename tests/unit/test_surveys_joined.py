"""A survey of some nodes joins what is held of the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random

from fixtures import planted_network
from fixtures.planted_network import PlantedNetwork, adjusted_rand_index, planted, truths
from railwright_topology import surveys
from railwright_topology.probing import findings
from railwright_topology.probing.findings import Figures, Findings
from railwright_topology.source_reports import Provenance, SourceReport

SEEN = Figures(3, 1e-5, 1e9, None)


def found(*tiers: Mapping[str, str], leaving: tuple[Mapping[str, float], ...] = ()) -> Findings:
    return Findings(tiers, (SEEN,) * len(tiers), (), 7, leaving)


def held(*tiers: Mapping[str, str], leaving: tuple[Mapping[str, float], ...] = ()) -> SourceReport:
    return SourceReport("held", Provenance.MEASURED, tiers, leaving=leaving)


def racks(**domains: str) -> dict[str, str]:
    """Each domain's nodes, a letter for each, by their domain."""
    return {node: domain for domain, nodes in domains.items() for node in nodes}


def test_unmeasured_nodes_stay_beside_common_ones() -> None:
    before = held(racks(p="abcd", q="efgh"))
    joined = surveys.joined(found(racks(a="abx", e="efy")), before, "abcdefghxy")
    assert joined.tiers == (racks(a="abcdx", e="efghy"),)
    assert joined.figures == (SEEN,)


def test_newest_survey_counts_and_removed_nodes_are_dropped() -> None:
    before = held(racks(p="abcd", q="efgh"))
    joined = surveys.joined(found(racks(a="ab", e="efd")), before, "abdefgh")
    assert joined.tiers == (racks(a="ab", d="defgh"),)


def test_survey_without_common_nodes_adds_own_domains() -> None:
    joined = surveys.joined(found(racks(x="xy")), held(racks(p="ab", q="cd")), "abcdxy")
    assert joined.tiers == (racks(a="ab", c="cd", x="xy"),)


def test_uplink_facts_stay_unless_more_nodes_share_them() -> None:
    before = held(racks(p="abcd", q="efgh"), leaving=({"p": 1.5, "q": 4.0},))
    joined = surveys.joined(found(racks(a="abx", e="efy")), before, "abcdefghxy")
    assert joined.leaving == ({"a": 1.5},)
    newer = found(racks(a="abx", e="efy"), leaving=({"a": 3.0, "e": 2.0},))
    assert surveys.joined(newer, before, "abcdefghxy").leaving == ({"a": 1.5, "e": 2.0},)
    assert surveys.joined(newer, before, "abxefy").leaving == ({"a": 3.0, "e": 2.0},)


def test_later_nodes_join_their_planted_domains() -> None:
    network = planted(96, (2, 3), seed=5)
    names = sorted(network.paths)
    late = {*Random(1).sample(names, 12)}
    first = _of(network, [name for name in names if name not in late])
    source_report = held(*first.tiers)
    beside: dict[str, list[str]] = {}
    for node, domain in sorted(first.tiers[0].items()):
        beside.setdefault(domain, []).append(node)
    chosen = [*late, *(node for its in beside.values() for node in its[:2])]
    joined = surveys.joined(_of(network, chosen), source_report, names)
    for truth, tier in zip(truths(network), joined.tiers, strict=True):
        assert adjusted_rand_index(truth, tier) == 1.0


def _of(network: PlantedNetwork, nodes: Iterable[str]) -> Findings:
    return findings.of(planted_network.survey(network, sorted(nodes)))
