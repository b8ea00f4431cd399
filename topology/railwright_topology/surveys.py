"""Join the findings of a survey with those of earlier surveys.

Nodes join one by one, and nodes that run jobs are not measured, so most surveys cover some of the
nodes; the others keep their domains. `railwright_operator.surveys` calls it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from railwright_topology import topology_merge
from railwright_topology.probing.contention import SATURATED
from railwright_topology.probing.findings import Figures, Findings
from railwright_topology.source_reports import Provenance, SourceReport

Domains = Mapping[str, str]

NOT_NOW = Figures(0, None, None, None)


def joined(found: Findings, held: SourceReport, nodes: Collection[str]) -> Findings:
    """Join the findings for these nodes of the cluster. The newest measurement counts; a tier
    without new measurements has no figures, and each domain keeps its newest uplink capacity."""
    capacities = found.leaving or ({},) * len(found.tiers)
    # The report with more capacity is the more trusted one.
    new = SourceReport("new", Provenance.MEASURED, found.tiers, capacity=1, leaving=capacities)
    tiers = tuple(
        {node: domain for node, domain in tier.items() if node in nodes} for tier in held.tiers
    )
    old = SourceReport("held", Provenance.MEASURED, tiers, leaving=held.leaving)
    merged = [tier.domains for tier in topology_merge.of((new, old)).tiers]
    figures = [NOT_NOW] * len(merged)
    for its, tier in topology_merge.matched(merged, found.tiers).items():
        figures[tier] = found.figures[its]
    # The first node of each domain.
    firsts = [{its[node]: node for node in sorted(its, reverse=True)} for its in merged]
    leaving: list[dict[str, float]] = [{} for _ in merged]
    for report in (old, new):
        for tier, domain, capacity in _capacities(report, merged):
            leaving[tier][firsts[tier][domain]] = capacity
    return Findings(
        tuple(
            {node: first[domain] for node, domain in domains.items()}
            for domains, first in zip(merged, firsts, strict=True)
        ),
        tuple(figures),
        found.strange,
        found.pairs,
        tuple(leaving),
    )


def _capacities(report: SourceReport, merged: list[Domains]) -> Iterator[tuple[int, str, float]]:
    """A report's uplink capacities by merged tier and domain. For a domain of which it has a part
    of the nodes, only a saturated value counts: more nodes would reach no more."""
    for its, tier in topology_merge.matched(merged, report.tiers).items():
        names = topology_merge.counterparts(report.tiers[its], merged[tier])
        whole, part = Counter(merged[tier].values()), Counter(report.tiers[its].values())
        for domain, capacity in report.leaving[its].items() if report.leaving else ():
            if domain not in names:
                continue
            all_there = part[domain] >= whole[names[domain]]
            if all_there or capacity <= SATURATED * part[domain]:
                yield tier, names[domain], capacity
