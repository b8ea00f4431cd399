"""What stays published of the reports of agents until they have reported to this process. Pure.

The Fabric is the only memory of it: after a restart `FabricReporter` takes it from there.
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from railwright_controllers.report import fabric
from railwright_controllers.report.fabric import Status
from railwright_conversion import bounds, interconnects
from railwright_topology import topology_merge
from railwright_topology.fabric import Fabric
from railwright_topology.interconnect import UNKNOWN, Interconnect
from railwright_topology.source_reports import SourceReport

Places = Mapping[str, tuple[str, ...]]

OF_REPORTS = frozenset(
    {"conflictCount", "conflicts", "hardware", "measuredNodes", "rails", "slow", "slowCount"}
)
"""The fields that reports of agents always take part in. If cables are among the sources, they
take part in all: they show which adapters are front-end."""


def fields(published: Mapping[str, Any], names: Iterable[str], nodes: Container[str]) -> Status:
    """The published fields of these names, without the entries that are only of a node that is
    gone. Nodes with the same hardware and aligned rails are published as numbers alone: in these a
    node that is gone still counts."""
    status: Status = {name: published.get(name) for name in names}
    for name, count in (("slow", "slowCount"), ("conflicts", "conflictCount")):
        listed = status[name] or []
        status[name] = entries(listed, nodes)
        if status[count] is not None:
            status[count] -= len(listed) - len(status[name])
    status["hardware"] = [
        each for each in status["hardware"] or () if each["nodes"] > 1 or each["first"] in nodes
    ]
    if rails := status["rails"]:
        miscabled = rails.get("miscabled") or []
        gone = {each["node"] for each in miscabled if each["node"] not in nodes}
        counted = rails["nodes"] - len(gone)
        status["rails"] = rails | {"nodes": counted, "miscabled": entries(miscabled, nodes)}
    return status


def entries(listed: Iterable[Status], nodes: Container[str]) -> list[Status]:
    """The entries of no node, of several, or of one that is there."""
    return [
        each
        for each in listed
        if "node" not in each or each["node"] in nodes or fabric.SAME in each["message"]
    ]


def topology(published: Mapping[str, Any], found: Fabric) -> Status:
    """The topology in which cables count as published, and labels and files as they are now. Which
    adapters are front-end, and so the domains of cables, only reports of agents show. All stays as
    in the ``published`` status if that would change a level, or a domain of cables: a host with
    front-end cables alone can have been in a domain by its labels. A host with cables that is in
    no published domain is in none until then."""
    before: Status = published["topology"]
    try:
        held = interconnects.parse(before)
    except ValueError:
        return before
    sources = {each["level"]: each["source"] for each in published.get("domains") or ()}
    by_cables = {
        network.wiring.source: _levels(network.wiring.source, held, sources)
        for network in found.networks
    }
    tiers = topology_merge.of(
        _as_published(report, held, by_cables[report.source])
        if report.source in by_cables
        else report
        for report in found.source_reports
    ).tiers[::-1]
    joined = _joined(found, held, by_cables)
    places = {
        node: tuple(tier.domains.get(node, UNKNOWN) for tier in tiers)
        for node in found.places.keys() - joined
    }
    has_same_levels = tuple(tier.name for tier in tiers) == held.levels
    if not has_same_levels or _differ(places, held.places, itertools.chain(*by_cables.values())):
        return before
    merged = replace(held, places=places)
    return interconnects.render_bounded(merged, fabric.TOPOLOGY_BYTES_MAX)[0] or before


def _levels(source: str, held: Interconnect, sources: Mapping[str, str]) -> list[int]:
    """The levels that this source names."""
    named = enumerate(map(sources.get, held.levels))
    return [level for level, its in named if its == bounds.name(source)]


def _joined(found: Fabric, held: Interconnect, by_cables: Container[str]) -> set[str]:
    """The hosts with cables that are in no published domain."""
    cabled = (each.nodes for each in found.source_reports if each.source in by_cables)
    return {node for nodes in cabled for node in nodes} - held.places.keys()


def _differ(places: Places, held: Places, levels: Iterable[int]) -> bool:
    """Whether a node that is in both has another domain at one of these levels."""
    both = places.keys() & held.keys()
    return any(places[node][level] != held[node][level] for level in levels for node in both)


def _as_published(report: SourceReport, held: Interconnect, levels: Sequence[int]) -> SourceReport:
    """The report of a network with the domains that are published of it, at these levels."""
    places = {node: held.place(node) for node in sorted(report.nodes)}
    return replace(
        report,
        tiers=tuple(
            {node: its[level] for node, its in places.items() if its[level] != UNKNOWN}
            for level in reversed(levels)
        ),
        names=tuple(held.levels[level] for level in reversed(levels)),
    )
