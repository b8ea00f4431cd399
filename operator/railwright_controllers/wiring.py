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
Endpoints       probes and metrics
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from railwright_controllers import metrics
from railwright_controllers.agents.probe_tasks import ProbeTasks
from railwright_controllers.agents.server import Agents
from railwright_controllers.informers import ControllerInformers
from railwright_controllers.report.fabric_reporter import FabricReporter
from railwright_controllers.report.node_healths import NodeHealthReporter
from railwright_controllers.surveys import stored
from railwright_controllers.surveys.surveyor import Surveyor
from railwright_kube.client import Api
from railwright_kube.signing_keys import PublishedKeys
from railwright_kube.tokens import Tokens
from railwright_kube.watching import Watching
from railwright_process import garbage
from railwright_process.environment import ReplicaSettings
from railwright_process.server import MessageServer
from railwright_process.tls import Certificates

AGENT = "railwright-agent"
"""The service account of node agents, in the namespace of the controllers."""

AUTHORITY = "railwright-controllers-tls"
"""The Secret with the authority of the agents' server."""

Run = Callable[[], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class ControllerRuntime:
    """What the controllers take from their machine: monotonic seconds, seconds since the epoch, and
    random sources for the jitter of retries. ``keep_objects`` is called once all lists were
    read."""

    clock: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], float] = time.time
    rng: Callable[[], Random] = Random
    keep_objects: Callable[[], None] = garbage.keep_for_good


@dataclass(eq=False)
class ControllerParts:
    """All parts, constructed in order; nothing runs yet. ``tasks`` run from the start, and
    ``leading`` only while this process holds the Lease."""

    api: Api
    runtime: ControllerRuntime
    settings: ReplicaSettings
    series: metrics.ControllerMetrics
    is_leader: Callable[[], bool]
    leader_address: Callable[[], str]

    def __post_init__(self) -> None:
        clock, rng = self.runtime.clock, self.runtime.rng
        self.informers = ControllerInformers(
            Watching(self.api, self.series.watch, clock, rng), namespace=self.settings.namespace
        )
        self.keys = PublishedKeys(self.api, clock=clock, rng=rng())
        self.probe_tasks = ProbeTasks(clock)
        self._construct_reporters()
        self._construct_server()
        self.tasks: tuple[Run, ...] = (
            *(informer.run for informer in self.informers.all),
            self.keys.run,
        )
        if self.certificates.encrypts:
            self.tasks += (self.certificates.run,)
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
        self.certificates = Certificates(
            self.api,
            self.settings.url,
            namespace=self.settings.namespace,
            name=AUTHORITY,
            may_write=self.is_leader,
            clock=self.runtime.clock,
            wall_clock=self.runtime.wall_clock,
            rng=self.runtime.rng,
        )
        self.server = MessageServer(
            agents.routes(),
            Tokens(
                self.keys,
                node_of=self._node_of,
                checks=self.series.agents.token_checks,
                clock=self.runtime.wall_clock,
            ),
            is_ready=lambda: self.is_leader() and not self.unsynced() and self.keys.available,
            leader_address=self.leader_address,
            tls=self.certificates.context if self.certificates.encrypts else None,
            metrics=self.series.agents,
            clock=self.runtime.clock,
        )

    def unsynced(self) -> list[str]:
        """The informers without a whole list."""
        return [repr(informer) for informer in self.informers.all if not informer.synced]

    def _node_of(self, uid: str) -> str | None:
        pod = self.informers.pods.records.get(uid)
        return None if pod is None or pod.terminal else pod.node
