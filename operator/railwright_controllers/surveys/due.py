"""Choose the nodes of a survey: those that are due, and some beside them. Pure."""

from __future__ import annotations

from collections.abc import Collection

from railwright_api.fabric import Probing
from railwright_topology.fabric import Fabric
from railwright_topology.interconnect import UNKNOWN
from railwright_topology.source_reports import Provenance

NEVER, WHEN_UNKNOWN = "Never", "WhenUnknown"

BESIDE = 2
"""The number of nodes of each nearest domain that are measured too, so that the result can be
compared with that domain."""
ENOUGH = 8
"""Fewer nodes show no tiers. If fewer are due, those are enough."""
HOUR_S = 3600


def of(fabric: Fabric, probing: Probing, now_s: float) -> frozenset[str]:
    """The nodes that the site wants measured and that no recent survey contains. A survey without
    times, such as one from a file of the site, is always recent. One of more than an hour later, of
    a clock that was ahead, is not."""
    nodes = fabric.places.keys()
    if probing.mode == NEVER or len(nodes) < 2:
        return frozenset()
    oldest_s = now_s - probing.max_age_hours * HOUR_S
    recent: set[str] = set()
    for source_report in fabric.source_reports:
        placed = frozenset().union(*source_report.tiers)
        if source_report.provenance is Provenance.MEASURED:
            times = {node: source_report.times.get(node, now_s) for node in placed}
            recent |= {node for node, s in times.items() if oldest_s < s <= now_s + HOUR_S}
        elif probing.mode == WHEN_UNKNOWN:
            recent |= placed
    return frozenset(nodes - recent)


def enough(nodes: Collection[str]) -> int:
    """The least number of nodes of a survey when these are due."""
    return max(2, min(ENOUGH, len(nodes)))


def chosen(
    fabric: Fabric, due: Collection[str], ready: Collection[str], *, least: int
) -> tuple[str, ...]:
    """The ready nodes that are due and some beside them; none if they are fewer than ``least``."""
    found = {node for node in due if node in ready}
    if not found:
        return ()
    beside: dict[str, list[str]] = {}
    for node in sorted(ready):
        domain = fabric.place(node)[-1] if fabric.levels else UNKNOWN
        if node not in due and domain != UNKNOWN:
            beside.setdefault(domain, []).append(node)
    found.update(node for its in beside.values() for node in its[:BESIDE])
    return tuple(sorted(found)) if len(found) >= least else ()
