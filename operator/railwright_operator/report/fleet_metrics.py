"""Prometheus series of the nodes, their devices and their jobs, computed at each scrape.

The nodes are those of the last scheduling cycle, which calls this.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry

from railwright_kube.metrics import Sample, ScrapedMetrics
from railwright_operator.report.job_metrics import LABELS
from railwright_operator.report.status import LAUNCHER_SILENT
from railwright_scheduler import assume
from railwright_scheduler.attempt.assessment import Ongoing
from railwright_scheduler.cluster_state import ClusterState
from railwright_scheduler.model.snapshot import Node, Unavailable, is_device
from railwright_scheduler.plan import Plan

RESOURCES_MAX = 32
"""Kinds of devices with series of their own, the most frequent first: of those that nodes have,
and of those that waiting jobs request."""

JOB_NODES_MAX = 5_000
"""Series of the nodes of jobs. Pods of several jobs may share a node."""

UNAVAILABLE_NODES_MAX = 200
"""Series of nodes that are not available: a person reads them."""

AVAILABLE, MISSING = "Available", "Missing"


GAUGES: dict[str, tuple[str, ...]] = {
    "nodes": ("Nodes by state: Available, or why no pod is placed on them.", "state"),
    "devices": ("Devices of all nodes, by resource.", "resource"),
    "devices_used": ("Devices that pods hold, or are about to, by resource.", "resource"),
    "devices_unavailable": ("Devices of nodes that are not available.", "resource"),
    "devices_free": ("Devices of available nodes that no pod holds.", "resource"),
    "devices_waiting_for": (
        "Devices that waiting jobs request, by resource, whether or not their jobs could run.",
        "resource",
    ),
    "node_unavailable": (
        "1 for each node that is not available, with the state as in railwright_nodes. At most "
        f"{UNAVAILABLE_NODES_MAX} series.",
        "node_name",
        "state",
    ),
    "job_node": (
        "1 for each node of the live attempt, with the state of the node: as in "
        "railwright_nodes, LauncherSilent if only the launcher is silent, or Missing without a "
        f"Node. At most {JOB_NODES_MAX} series.",
        *LABELS,
        "node_name",
        "state",
    ),
}
"""The gauges without their prefix: what each is, and its labels."""


class FleetMetrics(ScrapedMetrics):
    """Collects the series."""

    gauges = GAUGES

    def __init__(self, registry: CollectorRegistry) -> None:
        self._cycle: tuple[ClusterState, Plan] | None = None
        registry.register(self)

    def record(self, state: ClusterState, plan: Plan) -> None:
        """Take in a cycle."""
        self._cycle = state, plan

    def samples(self) -> Iterator[Sample]:
        """The current values. May be called in another thread than the event loop's."""
        if self._cycle is None:
            return
        state, plan = self._cycle
        # The nodes once the plan of the cycle is carried out.
        double_booked = frozenset(booking.node for booking in plan.double_bookings)
        nodes = assume.subtract_assumed(state, plan.ledger.entries, double_booked)
        yield from _of_nodes(nodes)
        yield from _of_waiting(state, plan)
        for labels in itertools.islice(_job_nodes(state, plan, nodes), JOB_NODES_MAX):
            yield "job_node", 1, labels


def _of_nodes(nodes: Sequence[Node]) -> Iterator[Sample]:
    """The samples of nodes and of their devices."""
    states = collections.Counter(node.unavailable for node in nodes)
    for unavailable in (None, *Unavailable) if nodes else ():
        yield "nodes", states[unavailable], (_state(unavailable),)
    all_devices = _devices(node.allocatable for node in nodes)
    used = _devices(node.used for node in nodes)
    available = [node for node in nodes if node.unavailable is None]
    unavailable_nodes = [node for node in nodes if node.unavailable is not None]
    lost = _devices(node.allocatable for node in unavailable_nodes)
    free = _devices(_devices([node.allocatable]) - _devices([node.used]) for node in available)
    for resource, count in all_devices.most_common(RESOURCES_MAX):
        yield "devices", count, (resource,)
        yield "devices_used", used[resource], (resource,)
        yield "devices_unavailable", lost[resource], (resource,)
        yield "devices_free", free[resource], (resource,)
    for node in unavailable_nodes[:UNAVAILABLE_NODES_MAX]:
        yield "node_unavailable", 1, (node.name, _state(node.unavailable))


def _of_waiting(state: ClusterState, plan: Plan) -> Iterator[Sample]:
    """The samples of the devices that waiting jobs request."""
    waiting = (each.job for each in state.jobs if each.job.uid in plan.waits)
    roles = [role for job in waiting for role in job.roles]
    requested = _devices(
        {resource: count * role.replicas for resource, count in role.per_pod.items()}
        for role in roles
    )
    of_nodes = _devices(node.allocatable for node in state.nodes).most_common(RESOURCES_MAX)
    for resource in dict([*of_nodes, *requested.most_common(RESOURCES_MAX)]):
        yield "devices_waiting_for", requested[resource], (resource,)


def _job_nodes(state: ClusterState, plan: Plan, nodes: Iterable[Node]) -> Iterator[tuple[str, ...]]:
    """The labels of each node of each live attempt."""
    states = {node.name: _state(node.unavailable) for node in nodes}
    for job in (each.job for each in state.jobs):
        record, verdict = plan.records.get(job.uid), plan.assessments.get(job.uid)
        if record is None or not record.live:
            continue
        suspected = verdict.suspected if isinstance(verdict, Ongoing) else ()
        silent = {record.nodes[rank] for rank in suspected}
        for name in dict.fromkeys(record.nodes):
            found = states.get(name, MISSING)
            if found == AVAILABLE and name in silent:
                found = LAUNCHER_SILENT
            yield job.namespace, job.name, name, found


def _state(unavailable: Unavailable | None) -> str:
    if unavailable is None:
        return AVAILABLE
    return "".join(word.capitalize() for word in unavailable.value.split("-"))


def _devices(amounts: Iterable[Mapping[str, int]]) -> collections.Counter[str]:
    """The sum of the devices in these amounts."""
    found: collections.Counter[str] = collections.Counter()
    for each in amounts:
        for resource, count in each.items():
            if is_device(resource):
                found[resource] += count
    return found
