"""Construct all parts of the controllers in order. The parts:

Leadership      a thread: holds the Lease; only its holder may write
KopfThread      a thread: watches the Fabric
Api             the one client to the API server
Informers       caches of the Fabric, NodeHealths, Nodes, Pods, and files of the site
Discovery       the fabric, assembled from labels, files and reports of agents
Certificates    the TLS of the server for node agents
MessageServer   the server for reports and polls of node agents
Surveyor        has agents probe each other where no source has the topology
reporters       the status of the Fabric, and NodeHealths
Endpoints       probes
MetricsServer   metrics
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from railwright_controllers import metrics
from railwright_controllers.agents.probe_tasks import ProbeTasks
from railwright_controllers.agents.server import Agents
from railwright_controllers.informers import ControllerInformers
from railwright_controllers.report.fabric_reporter import FabricReporter
from railwright_controllers.report.node_healths import NodeHealthReporter
from railwright_controllers.surveys import stored
from railwright_controllers.surveys.surveyor import Surveyor
from railwright_kube.watching import Watching
from railwright_process.wiring import ReplicaParts, Run

AGENT = "railwright-agent"
"""The service account of node agents, in the namespace of the controllers."""

AUTHORITY = "railwright-controllers-tls"
"""The Secret with the authority of the agents' server."""


@dataclass(eq=False)
class ControllerParts(ReplicaParts):
    """All parts, constructed in order; nothing runs yet. ``tasks`` run from the start, and
    ``leading`` only while this process holds the Lease."""

    series: metrics.ControllerMetrics

    def __post_init__(self) -> None:
        clock, rng = self.runtime.clock, self.runtime.rng
        self.informers = ControllerInformers(
            Watching(self.api, self.series.watch, clock, rng), namespace=self.settings.namespace
        )
        self.construct_credentials(AUTHORITY)
        self.probe_tasks = ProbeTasks(clock)
        self._construct_reporters()
        self._construct_server()
        self.construct_tasks(*self.informers.all)
        self.leading: tuple[Run, ...] = (
            self.informers.discovery.run,
            self.fabric_reporter.run,
            self.health_reporter.run,
            self.surveyor.run,
        )

    async def run(self, leading: asyncio.Event, watch_fabric: Callable[[], object]) -> None:
        """Watch from the start; ``watch_fabric`` starts the watch of the Fabric. Discover and
        publish once this process leads and all lists are whole: a fabric of half the nodes would
        replace that of all."""
        async with asyncio.TaskGroup() as tasks:
            for start in self.tasks:
                tasks.create_task(start())
            for informer in self.informers.all:
                await informer.wait_synced()
            watch_fabric()
            await leading.wait()
            self.runtime.keep_objects()
            for start in self.leading:
                tasks.create_task(start())

    def _construct_reporters(self) -> None:
        watched, runtime = self.informers, self.runtime
        nodes = watched.nodes.records
        self.surveyor = surveyor = Surveyor(
            self.probe_tasks,
            fabric=watched.fabric,
            discovery=watched.discovery,
            nodes=nodes,
            busy=watched.busy.names,
            left=watched.survey_progress,
            keep=partial(stored.keep, self.api, self.settings.namespace),
            metrics=self.series.surveys,
            clock=runtime.clock,
            wall_clock=runtime.wall_clock,
            rng=runtime.rng(),
        )
        self.health_reporter = NodeHealthReporter(
            self.api,
            healths=watched.healths,
            discovery=watched.discovery,
            nodes=nodes,
            clock=runtime.clock,
            rng=runtime.rng(),
        )
        self.fabric_reporter = FabricReporter(
            self.api,
            cache=watched.fabric,
            fabrics=watched.fabrics,
            discovery=watched.discovery,
            unsurveyed=lambda: surveyor.problems,
            late=watched.late,
            nodes=nodes,
            clock=runtime.clock,
            wall_clock=runtime.wall_clock,
            rng=runtime.rng(),
        )

    def _construct_server(self) -> None:
        agents = Agents(
            service_account=f"system:serviceaccount:{self.settings.namespace}:{AGENT}",
            on_hardware_report=self.informers.discovery.receive_report,
            on_utilization=self.series.gpus.record,
            probe_tasks=self.probe_tasks,
        )
        self.construct_server(
            agents.routes(),
            self.informers.pods.records,
            self.series.agents,
            is_ready=lambda: self.is_leader() and not self.unsynced() and self.keys.available,
        )
