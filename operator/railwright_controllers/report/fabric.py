"""Render the status of the Fabric: the topology, its sources, their conflicts, and problems."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from railwright_api.fabric import (
    CONFLICTS_MAX,
    FAULTS_MAX,
    HARDWARE_MAX,
    NETWORKS_MAX,
    PROBLEMS_MAX,
    SLOW_MAX,
    SOURCES_MAX,
)
from railwright_api.interconnect import LEVELS_MAX
from railwright_controllers.discovery import SILENT_S, AgentSummary, FabricState
from railwright_controllers.file_reads import FileRead
from railwright_conversion import bounds, interconnects
from railwright_kube.yielding import TimeSlice
from railwright_scheduler.model import text
from railwright_topology import hardware_inventory, outline, slow_devices, speeds, topology_merge
from railwright_topology.fabric import Fabric
from railwright_topology.grouping import group
from railwright_topology.interconnect import UNKNOWN
from railwright_topology.networks import Network
from railwright_topology.source_reports import SCALE_UP, SourceReport
from railwright_topology.sources import probes
from railwright_watch.nodes import NodeRecord

Status = dict[str, Any]

TOPOLOGY_BYTES_MAX, REST_BYTES_MAX = 900_000, 130_000
"""Of the topology, and of all else in the status: a Fabric is smaller than 1 MiB, and the API
server stores objects of up to 1.5 MiB."""

WHOLE = frozenset({"domains", "networks", "sources"})
"""The lists of which no entry is left out for the size of the Fabric."""

NAMED = 3
"""The most nodes that a message names."""

SAME = "; the same on "
"""In the message on several nodes, of which it names the first."""


@dataclass(frozen=True, slots=True)
class FabricSummary:
    """What one assembly of the fabric gives: ``status`` for people, ``topology`` for scheduling
    (None: it fits no object), and problems of the topology."""

    status: Status = field(default_factory=dict)
    topology: Status | None = None
    problems: tuple[str, ...] = ()


def summarize(found: FabricState) -> FabricSummary:
    """Render a fabric, bounded so that the schema accepts any content."""
    topology, left_out = interconnects.render_bounded(found.fabric, TOPOLOGY_BYTES_MAX)
    problems = []
    if topology is None:
        problems = ["the last topology stays: the names of the nodes do not fit the Fabric"]
    elif left_out:
        names = ", ".join(left_out)
        problems = [f"levels are left out, as the Fabric would be too large: {names}"]
    return FabricSummary(_summary_status(found), topology, tuple(problems))


def _summary_status(found: FabricState) -> Status:
    """The topology and the conflicts of sources for people."""
    fabric = found.fabric
    conflicts = fabric.merged_topology.conflicts
    slow = group(((each.node, each.device), slow_devices.describe(each)) for each in fabric.slow)
    return {
        "nodes": len(fabric.places),
        "domains": [_level(fabric, level) for level in range(len(fabric.levels))],
        "scaleUpDomains": _scale_up_domains(fabric),
        "summary": _summary(fabric),
        "networks": [_network(network) for network in fabric.networks[:NETWORKS_MAX]],
        "rails": _rails(fabric),
        "sources": [_source(found, each) for each in fabric.source_reports[:SOURCES_MAX]],
        "hardware": _hardware(fabric)[:HARDWARE_MAX],
        "measuredNodes": len(fabric.benchmarks),
        "slow": [
            {"node": node, "message": bounds.sentence("; ".join(texts))}
            for (node, _), texts in itertools.islice(slow.items(), SLOW_MAX)
        ],
        "slowCount": len(slow),
        "conflicts": [*itertools.islice(_conflicts(fabric), CONFLICTS_MAX)],
        "conflictCount": len(conflicts) + sum(1 for _ in fabric.inner_conflicts()),
    }


def agents_status(agents: AgentSummary) -> Status | None:
    """The number of agents."""
    counts = {"nodes": agents.reporting, "silent": len(agents.silent)}
    return counts if agents.reporting else None


def freshness(now_s: float, *, oldest_report_s: float | None) -> Status:
    """When the sources were last compared with the status, and the time of the oldest one of the
    agents' last reports. ``now_s`` is Unix time, ``oldest_report_s`` the age of that report."""
    oldest = None if oldest_report_s is None else _timestamp(now_s - oldest_report_s)
    return {"checked": _timestamp(now_s), "oldestReport": oldest}


def _timestamp(unix_s: float) -> str:
    return datetime.fromtimestamp(int(unix_s), UTC).strftime(probes.TIME)


async def problems(
    found: FabricState,
    nodes: Mapping[str, NodeRecord],
    clock: Callable[[], float],
    *,
    agents: AgentSummary,
    unsurveyed: Iterable[str] = (),
    unpublished: Iterable[str] = (),
    kept: Sequence[Status] | None = None,
) -> Status:
    """Problems of files and nodes, silent agents, what prevents surveys, and what prevents that the
    topology is published as it is. Those of agents and of hardware are the ones of ``kept``, if it
    is given."""
    found_problems = [_problem("probing", message) for message in unsurveyed]
    found_problems.extend(_of_agents(agents) if kept is None else _of_key("agents", kept))
    found_problems.extend(_problem("topology", message) for message in unpublished)
    if found.problem:
        found_problems.append(_problem("fabric", found.problem))
    found_problems.extend(_of_file(read) for read in found.files if read.problem)
    found_problems.extend(_problem(text.partition(":")[0], text) for text in found.fabric.remarks)
    found_problems.extend(_of_hardware(found.fabric) if kept is None else _of_key("hardware", kept))
    time_slice = TimeSlice(clock)
    for record in sorted(nodes.values(), key=lambda node: node.name):
        if time_slice.is_over:
            await time_slice.yield_to_others()
        found_problems.extend(_of_node(record, found.fabric))
    return {"problems": found_problems[:PROBLEMS_MAX], "problemCount": len(found_problems)}


def _problem(key: str, message: str, **node: str) -> Status:
    return {**node, "key": bounds.name(key), "message": bounds.sentence(message)}


def _summary(fabric: Fabric) -> str:
    """The number of domains of each level, the coarsest first, of scale-up domains and rails."""
    sizes = ((name, fabric.sizes(fabric.places, at)) for at, name in enumerate(fabric.levels))
    text = " > ".join(str(len(its)) for name, its in sizes if name != SCALE_UP) or "none"
    if scale_up := fabric.merged_topology.scale_up_domains:
        text += f"; {len({*scale_up.domains.values()})} scale-up domains"
    rails = max((network.rails for network in fabric.networks), default=0)
    return f"{text}; {rails} rails" if rails else text


def _level(fabric: Fabric, level: int) -> Status:
    sizes = fabric.sizes(fabric.places, level)
    tier = fabric.merged_topology.tiers[-1 - level]
    return {
        "level": bounds.name(fabric.levels[level]),
        "source": bounds.name(tier.source),
        **_sizes(sizes),
        "filled": len(tier.filled),
    }


def _scale_up_domains(fabric: Fabric) -> Status | None:
    scale_up = fabric.merged_topology.scale_up_domains
    if scale_up is None:
        return None
    sizes = collections.Counter(scale_up.domains.values())
    return {"source": bounds.name(scale_up.source), **_sizes(sizes)}


def _sizes(sizes: Mapping[str, int]) -> Status:
    """The number of domains, and the number of nodes of the smallest and the largest."""
    smallest, largest = min(sizes.values(), default=0), max(sizes.values(), default=0)
    return {"count": len(sizes), "smallest": smallest, "largest": largest}


def _network(network: Network) -> Status:
    return {
        "source": bounds.name(network.wiring.source),
        "hosts": network.hosts,
        "rails": network.rails,
        "adapters": [
            {"speed": speeds.text(speed), "count": count}
            for speed, count in network.speeds().items()
        ][:SOURCES_MAX],
        "oversubscription": [
            f"{ratio:.3g}:1" for _, ratio in sorted(network.oversubscription().items())
        ][:LEVELS_MAX],
        "reducingSwitches": sum(switch.reduces for switch in network.wiring.switches),
        "faults": [bounds.sentence(fault) for fault in network.faults[:FAULTS_MAX]],
        "faultCount": len(network.faults),
    }


def _rails(fabric: Fabric) -> Status | None:
    if not fabric.rails:
        return None
    found = [
        {"node": node, "rail": each.rail, "message": bounds.sentence(each.description)}
        for node, rails in fabric.rails.items()
        for each in rails.miscabled
    ]
    return {
        "nodes": len(fabric.rails),
        "aligned": sum(not rails.miscabled for rails in fabric.rails.values()),
        "miscabled": found[:FAULTS_MAX],
    }


def _source(found: FabricState, source_report: SourceReport) -> Status:
    fabric = found.fabric
    unused = [
        f"{tier} is not used: it fits between none of the tiers of more trusted sources"
        if tier != SCALE_UP
        else topology_merge.CROSSING
        for source, tier in fabric.merged_topology.unmatched
        if source == source_report.source
    ]
    tiers = (source_report.name(tier) for tier in range(len(source_report.tiers)))
    return {
        "source": bounds.name(source_report.source),
        "provenance": source_report.provenance.name.capitalize(),
        "nodes": len(source_report.nodes),
        "tiers": [bounds.name(tier) for tier in tiers][:LEVELS_MAX],
        "remarks": [bounds.sentence(text) for text in (*unused, *source_report.strange)][
            :FAULTS_MAX
        ],
        # The API server drops null in a list: the status would differ again in every report.
        **({"time": time} if (time := _time(found, source_report)) else {}),
    }


def _time(found: FabricState, source_report: SourceReport) -> str:
    """The oldest time in a source report; empty if it has no times."""
    if source_report.times:
        return _timestamp(min(source_report.times.values()))
    for read in found.files:
        for each in read.facts:
            its = each.source_report if isinstance(each, Network) else each
            if its.source == source_report.source:
                return read.time
    return ""


def _hardware(fabric: Fabric) -> list[Status]:
    return [
        {
            "nodes": len(nodes),
            "first": nodes[0],
            "found": bounds.sentence(text),
            "unknown": [bounds.sentence(its) for its in fabric.inventories[nodes[0]].unknown][
                :FAULTS_MAX
            ],
        }
        for text, nodes in outline.kinds(fabric.inventories)
    ]


def _conflicts(fabric: Fabric) -> Iterator[Status]:
    """The conflicts of sources, and those of hardware reports; equal ones of many nodes once."""
    for first, *others in topology_merge.group_conflicts(fabric.merged_topology.conflicts):
        message = _for_all(topology_merge.describe(first), 1 + len(others))
        yield _conflict(first.node, first.level, first.source, message)
    of_nodes = group((conflict, node) for node, conflict in fabric.inner_conflicts())
    for conflict, nodes in of_nodes.items():
        message = _for_all(hardware_inventory.describe(conflict), len(nodes))
        yield _conflict(nodes[0], conflict.fact, conflict.source, message)


def _conflict(node: str, level: str, source: str, message: str) -> Status:
    names = {"level": bounds.name(level), "source": bounds.name(source)}
    return {"node": node, **names, "message": message}


def _for_all(message: str, nodes: int) -> str:
    """The message for the first of these nodes, with the number of the others, which stays if the
    message is cut."""
    more = f"{SAME}{nodes - 1} more" if nodes > 1 else ""
    return bounds.sentence(message, end=more)


def _of_file(read: FileRead) -> Status:
    kept = "; its last valid content stays" if read.facts else ""
    return _problem(str(read.file), f"{read.problem}{kept}")


def _of_key(key: str, problems: Iterable[Status]) -> Iterator[Status]:
    return (each for each in problems if each["key"] == key)


def _of_agents(agents: AgentSummary) -> Iterator[Status]:
    """Silent agents, and refused reports."""
    if agents.silent:
        message = (
            f"{len(agents.silent)} of {agents.reporting} agents sent nothing for "
            f"{SILENT_S / 60:.0f} minutes, their last reports stay: "
            f"{bounds.listed(agents.silent, NAMED)}"
        )
        yield _problem("agents", message)
    if agents.refused:
        (node, why), more = agents.refused[0], len(agents.refused) - 1
        message = f"the report of {node} is invalid: {why}" + (f"; {more} more" if more else "")
        yield _problem("agents", message)


def _of_hardware(fabric: Fabric) -> Iterator[Status]:
    """Hardware that cannot be used."""
    remarks = ((text, node) for node, its in fabric.inventories.items() for text in its.remarks)
    for remark, nodes in group(remarks).items():
        yield _problem("hardware", _for_all(remark, len(nodes)), node=nodes[0])


def _of_node(node: NodeRecord, fabric: Fabric) -> Iterator[Status]:
    """The levels at which this node has no domain, and amounts that could not be read."""
    for level, domain in zip(fabric.levels, fabric.place(node.name), strict=True):
        if domain == UNKNOWN and level != SCALE_UP and not node.is_reserved:
            what = "no source has the domain of this node at this level"
            if level in node.labels and not node.labels[level]:
                what = f"the label is empty: {what}"
            yield _problem(level, what, node=node.name)
    for resource, why in sorted(node.unread.items()):
        counted = text.number(resource, node.allocatable.get(resource, 0))
        message = f"{why}; the last value that could be read, {counted}, counts"
        yield _problem(resource, message, node=node.name)
