"""Construct all parts of the operator in order. The parts:

    Leadership   a thread: holds the Lease; only its holder may write
    Api          the one client to the API server
    Informers    caches of TrainingJobs, Placements, Profiles, Pods, Nodes, Queues, …
    NodeLeaseChecker  the Leases of suspected nodes
    Certificates the TLS of that server
    heartbeats   the server for messages of launchers
    Cycle        state, plan, ledger, requests, statuses
    Verification compares informers and invariants with fresh lists
    watchdog     a thread: ends the process when a cycle hangs (JobFaults: what is set aside)
    reporters    statuses and events
    Endpoints    probes
    MetricsServer  metrics

A leader that loses its Lease, or finds the ledger written by another leader, ends the process: its
state in memory is void.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from prometheus_client import CollectorRegistry

from railwright_kube import errors
from railwright_kube.watching import Watching
from railwright_operator import mapper_process, metrics
from railwright_operator.cycle import Cycle
from railwright_operator.faults import JobFaults, WriteMark
from railwright_operator.heartbeats.reception import ADVANCE_S_MAX, ReceptionClock, advance
from railwright_operator.heartbeats.server import Launchers
from railwright_operator.heartbeats.sessions import Sessions
from railwright_operator.informers import Informers
from railwright_operator.invariants import Verification
from railwright_operator.machines import Machines
from railwright_operator.mapping_requests import MappingRequests, Start
from railwright_operator.report.attempt_metrics import AttemptMetrics
from railwright_operator.report.commits import Commits
from railwright_operator.report.cycle_metrics import CycleMetrics
from railwright_operator.report.events import Events
from railwright_operator.report.fleet_metrics import FleetMetrics
from railwright_operator.report.job_metrics import JobMetrics
from railwright_operator.report.queues import QueueReporter
from railwright_operator.report.reporter import Reporter
from railwright_operator.settings import Settings
from railwright_operator.state_builder import StateBuilder
from railwright_operator.watch.jobs import CachedJob
from railwright_operator.watch.node_leases import NodeLeaseChecker, read_lease
from railwright_operator.watchdog import CycleWatchdog
from railwright_operator.write import defaults, profiles, rendering
from railwright_operator.write.executor import Executor
from railwright_operator.write.ledger import LedgerStore
from railwright_operator.write.old_placements import OldPlacements
from railwright_operator.write.rendering import Rendering
from railwright_process import lifecycle
from railwright_process.wiring import ReplicaParts, Run

AUTHORITY = "railwright-operator-tls"
"""The Secret with the authority of the heartbeat server."""

FIRST_TOPOLOGY_S = 10.0
"""How long jobs of a new installation wait until the Fabric has a topology to place them by."""


@dataclass(eq=False)
class OperatorParts(ReplicaParts):
    """All parts, constructed in order; nothing runs yet. ``tasks`` run from the start, and
    ``leading`` only in a leader. ``start_mapper`` starts a process of the mapper."""

    settings: Settings
    registry: CollectorRegistry
    series: metrics.Metrics
    mark_hung: WriteMark
    give_up_lease: Callable[[], None]
    start_mapper: Start = mapper_process.started

    def __post_init__(self) -> None:
        self._construct_inputs()
        self._construct_state()
        self._construct_cycle()
        self._construct_server()
        self.construct_tasks(*self.informers.warm)
        self.tasks += (partial(advance, self.listening),)
        self.old_placements = OldPlacements(
            self.api,
            placements=self.informers.placement_objects,
            clock=self.runtime.clock,
            rng=self.runtime.rng(),
        )
        self.leading: tuple[Run, ...] = (
            self.lease_checker.run,
            self.events.run,
            self.informers.follow_start_events,
            self.verification.run,
            self.queue_reporter.run,
            self.old_placements.run,
        )

    def _construct_inputs(self) -> None:
        self.awake = asyncio.Event()
        clock, rng = self.runtime.clock, self.runtime.rng
        self.listening = ReceptionClock(clock, gap_s=ADVANCE_S_MAX)
        self.construct_credentials(AUTHORITY)
        self.launcher = rendering.Launcher(
            self.settings.launcher_image,
            self.settings.url,
            authorities=self.certificates.authorities,
        )
        self.reception_clock = ReceptionClock(clock)
        self.sessions = Sessions(clock=self.reception_clock, wake=self.awake.set)
        self.commits = Commits(self.awake.set)
        self.informers = Informers(
            Watching(self.api, self.series.watch, clock, rng, self.awake.set),
            launcher=self.launcher,
            reception_clock=self.reception_clock,
        )
        index = self.informers.pod_index
        self.series.mislabelled_pods.set_function(lambda: index.mislabelled)
        self.queue_reporter = QueueReporter(
            self.api,
            site=self.informers.site,
            jobs=self.informers.jobs,
            absorb=self.informers.absorb_queue,
            clock=clock,
            rng=rng(),
        )
        ask = partial(read_lease, self.api)
        self.lease_checker = NodeLeaseChecker(ask, clock=clock, wake=self.awake.set)

    def _construct_state(self) -> None:
        api, informers, jobs, wake = self.api, self.informers, self.informers.jobs, self.awake.set
        clock, rng = self.runtime.clock, self.runtime.rng
        self.ledger = ledger = LedgerStore(api, holder=self.settings.identity)
        rendering = Rendering(jobs, launcher=self.launcher)
        self.executor = Executor(
            api,
            pods=informers.pods,
            placements=informers.placement_objects,
            render_pod=rendering.pod,
            render_placement=lambda e: rendering.placement(e, epoch=ledger.ledger.epoch),
            wake=wake,
            clock=clock,
            rng=rng(),
        )
        self.mapping_requests = MappingRequests(
            metrics=self.series.mappings,
            clock=clock,
            wake=wake,
            rng=rng(),
            start=self.start_mapper,
        )
        self.state_builder = StateBuilder(
            jobs=jobs,
            site=informers.site,
            pods=informers.pod_index,
            fabric=informers.interconnect,
            healths=informers.healths,
            machines=Machines(informers.nodes.records, informers.pod_index),
            start_events=informers.start_events,
            sessions=self.sessions,
            lease_checker=self.lease_checker,
            executor=self.executor,
            mappings=self.mapping_requests,
            clock=self.listening,
            reception_clock=self.reception_clock,
            wall_clock=self.runtime.wall_clock,
        )

    def _construct_cycle(self) -> None:
        api, informers, wake = self.api, self.informers, self.awake.set
        jobs, counts = informers.jobs, CycleMetrics(self.registry)
        clock, rng = self.runtime.clock, self.runtime.rng
        job_metrics = JobMetrics(
            self.registry,
            clock=clock,
            reception_clock=self.reception_clock,
            wall_clock=self.runtime.wall_clock,
        )
        faults = JobFaults(jobs, raised=counts.job_faults, clock=clock, rng=rng())
        mark = partial(faults.leave_mark, self.mark_hung)
        self.watchdog = CycleWatchdog(mark=mark, release=self.give_up_lease)
        self.events = Events(
            api,
            instance=self.settings.identity,
            dropped=counts.events_dropped,
            clock=clock,
            wall_clock=self.runtime.wall_clock,
        )
        reporter = Reporter(
            api,
            jobs=jobs,
            sessions=self.sessions,
            commits=self.commits,
            events=self.events,
            faults=faults,
            attempt_metrics=AttemptMetrics(self.registry),
            job_metrics=job_metrics,
            state_builder=self.state_builder,
            store_profile=self._store_profile,
            wake=wake,
            clock=clock,
            wall_clock=self.runtime.wall_clock,
            rng=rng(),
        )
        self.cycle = Cycle(
            self.state_builder,
            ledger=self.ledger,
            executor=self.executor,
            reporter=reporter,
            faults=faults,
            watchdog=self.watchdog,
            metrics=counts,
            fleet_metrics=FleetMetrics(self.registry),
            awake=self.awake,
            clock=clock,
            rng=rng(),
        )
        self.verification = Verification(
            self.informers,
            ledger=lambda: self.ledger.ledger,
            violations=counts.violations,
            clock=clock,
        )

    async def _store_profile(self, cached: CachedJob, attempt: int, document: str) -> None:
        stored = await profiles.store(self.api, cached, attempt, document)
        self.informers.profiles.absorb(stored)

    def _construct_server(self) -> None:
        launchers = Launchers(
            sessions=self.sessions,
            audience_of=rendering.audience,
            pod_uid_of=self.informers.pod_index.uid_of,
            on_commit=self.commits.ask,
        )
        self.construct_server(
            launchers.routes(),
            self.informers.pods.records,
            self.series.heartbeats,
            is_ready=self._is_ready,
            on_tick=self.reception_clock.tick,
        )

    def _is_ready(self) -> bool:
        """Whether messages of launchers are accepted."""
        return self.is_leader() and self.informers.pods.synced and self.keys.available

    async def run(self, leading: asyncio.Event) -> None:
        """Watch nodes, NodeHealths and the Fabric from the start. Watch everything else, and run
        cycles, once this process leads.

        The first cycle needs complete lists: an attempt in the ledger whose job has not been read
        yet would look like one whose job was deleted.
        """
        async with asyncio.TaskGroup() as tasks:
            for start in self.tasks:
                tasks.create_task(start())
            await leading.wait()
            self.cycle.started_leading()
            tasks.create_task(self.mapping_requests.run())  # They start while lists are read.
            with contextlib.suppress(errors.RequestFailed):
                # Once: what refuses a queue must keep nothing else, and its reporter tries again.
                await defaults.ensure(self.api)
            await lifecycle.persist(self.cycle.take_over, self.runtime.rng())
            for informer in self.informers.leading:
                tasks.create_task(informer.run())
            for informer in (*self.informers.leading, *self.informers.warm):
                await informer.wait_synced()
            self.runtime.keep_objects()
            for start in self.leading:
                tasks.create_task(start())
            await self.certificates.wait_available()
            await self.informers.interconnect.wait_first(FIRST_TOPOLOGY_S)
            await self.cycle.run()
