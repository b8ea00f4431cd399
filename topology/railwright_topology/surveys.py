"""What a survey found, together with what is held of those before it.

Nodes come one by one, and those that jobs run on are not measured. So a survey is mostly of some
nodes; the others stand as they did, beside those that both have.
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
    """Of these nodes of the cluster. What was measured last counts; a tier that it did not show has
    no figures, and of each domain the newest that is known of its uplinks is kept."""
    capacities = found.leaving or ({},) * len(found.tiers)
    # What says the same the more trusted account says first: that with more capacity.
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
    """What an account says of uplinks, by the tiers and domains that were agreed on. Where it knows
    but a part of a domain, only what fills its uplinks counts: all would reach no more."""
    for its, tier in topology_merge.matched(merged, report.tiers).items():
        names = topology_merge.counterparts(report.tiers[its], merged[tier])
        whole, part = Counter(merged[tier].values()), Counter(report.tiers[its].values())
        for domain, capacity in report.leaving[its].items() if report.leaving else ():
            if domain not in names:
                continue
            all_there = part[domain] >= whole[names[domain]]
            if all_there or capacity <= SATURATED * part[domain]:
                yield tier, names[domain], capacity
