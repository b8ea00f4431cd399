"""Every moving part of the operator and what it is constructed from: the table of contents.

    Leadership   a thread: the Lease, and with it who may write
    KopfThread   a thread: queues or fabrics changed, look again
    Api          the one client to the API server
    reflectors   copies of TrainingJobs, Pods, Nodes, PriorityClasses, files about the network
    Discovery    the fabric, put together from labels, files and what agents tell
    Kubelets     the Leases of suspected nodes
    PreRuns      the small gangs ahead of large jobs
    heartbeats   the server that launchers and agents speak to
    Surveyor     sends agents to each other where nobody says how nodes stand
    Cycle        observe, plan, ledger, act, tell
    Verification holds copies and invariants against fresh lists now and then
    watchdog     a thread: ends the process when a cycle hangs (JobFaults: what is set aside)
    reporters    statuses and events
    Endpoints    probes and metrics

A leader that loses its Lease, or finds the ledger written by another, ends the process: what it
holds it decided as the leader.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from prometheus_client import CollectorRegistry

from railwright_operator import copies as watched
from railwright_operator import metrics
from railwright_operator.copies import Copies
from railwright_operator.cycle import Cycle
from railwright_operator.faults import JobFaults, WriteMark
from railwright_operator.heartbeats import state
from railwright_operator.heartbeats.agents import Agents
from railwright_operator.heartbeats.server import HeartbeatServer
from railwright_operator.heartbeats.state import HeartbeatState
from railwright_operator.kube.client import Api
from railwright_operator.machines import Machines
from railwright_operator.observe import Observer
from railwright_operator.pre_runs import PreRuns
from railwright_operator.report import loop_lag
from railwright_operator.report.commits import Commits
from railwright_operator.report.cycle_metrics import CycleMetrics
from railwright_operator.report.events import Events
from railwright_operator.report.loop_lag import ListeningClock
from railwright_operator.report.reporter import Reporter
from railwright_operator.report.site import SiteReporter
from railwright_operator.settings import Settings
from railwright_operator.surveys import busy
from railwright_operator.surveys.surveyor import Clocks, Surveyor
from railwright_operator.verification import Verification
from railwright_operator.watch.kubelets import Kubelets, lease_of
from railwright_operator.watchdog import CycleWatchdog
from railwright_operator.write import pods, probes
from railwright_operator.write.actuate import Actuator
from railwright_operator.write.ledger import LedgerStore
from railwright_operator.write.rendering import Rendering

clock = time.monotonic

AGENT = "railwright-agent"
"""The service account that agents on nodes have, in the operator's namespace."""

Run = Callable[[], Coroutine[Any, Any, None]]


@dataclass(eq=False)
class Parts:
    """All parts, each constructed when it is first needed; nothing runs yet."""

    api: Api
    settings: Settings
    registry: CollectorRegistry
    series: metrics.Metrics
    is_leader: Callable[[], bool]
    mark_hung: WriteMark
    give_up_lease: Callable[[], None]
    awake: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def tasks(self) -> tuple[Run, ...]:
        """What runs from the start."""
        lag = partial(loop_lag.observe, self.series.loop_lag_s, clock, self.listening)
        return (*(copy.run for copy in self.copies.warm), self.received.keys.run, lag)

    @property
    def leading(self) -> tuple[Run, ...]:
        """What runs only in a leader."""
        copies = self.copies
        return (
            self.kubelets.run,
            self.events.run,
            copies.kinds.run,
            copies.follow_pulls,
            self.verification.run,
            copies.discovery.run,
            self.site_reporter.run,
            self.surveyor.run,
        )

    @cached_property
    def listening(self) -> ListeningClock:
        return ListeningClock(clock)

    @cached_property
    def launcher(self) -> pods.Launcher:
        return pods.Launcher(self.settings.launcher_image, self.settings.heartbeat_url)

    @cached_property
    def received(self) -> HeartbeatState:
        return state.construct(self.api, wake=self.awake.set, clock=clock, rng=rng())

    @cached_property
    def copies(self) -> Copies:
        return watched.assemble(
            self.api,
            self.settings,
            launcher=self.launcher,
            listening=self.received.hearing,
            series=self.series.watch,
            wake=self.awake.set,
            clock=clock,
            rng=rng,
        )

    @cached_property
    def commits(self) -> Commits:
        return Commits(self.awake.set)

    @cached_property
    def counts(self) -> CycleMetrics:
        return CycleMetrics(self.registry)

    @cached_property
    def ledger(self) -> LedgerStore:
        return LedgerStore(self.api, holder=self.settings.identity)

    @cached_property
    def kubelets(self) -> Kubelets:
        return Kubelets(lease_of(self.api), clock=clock, wake=self.awake.set)

    @cached_property
    def events(self) -> Events:
        dropped = self.counts.events_dropped
        return Events(self.api, instance=self.settings.identity, dropped=dropped, clock=clock)

    @cached_property
    def faults(self) -> JobFaults:
        raised = self.counts.job_faults
        return JobFaults(self.copies.jobs, raised=raised, clock=clock, rng=rng())

    @cached_property
    def watchdog(self) -> CycleWatchdog:
        mark = partial(self.faults.leave_mark, self.mark_hung)
        return CycleWatchdog(mark=mark, release=self.give_up_lease)

    @cached_property
    def verification(self) -> Verification:
        return Verification(
            self.copies,
            ledger=lambda: self.ledger.ledger,
            violations=self.counts.violations,
            clock=clock,
        )

    @cached_property
    def pre_runs(self) -> PreRuns:
        jobs = self.copies.jobs
        return PreRuns(self.api, jobs=jobs, wake=self.awake.set, clock=clock, rng=rng())

    @cached_property
    def surveyor(self) -> Surveyor:
        nodes, jobs, pod_index = self.copies.nodes.records, self.copies.jobs, self.copies.pod_index
        return Surveyor(
            self.received.errands,
            site=self.copies.site,
            discovery=self.copies.discovery,
            nodes=nodes,
            busy=lambda: busy.of((node.name for node in nodes.values()), jobs, pod_index),
            keep=partial(probes.keep, self.api, self.settings.namespace),
            metrics=self.series.surveys,
            clocks=Clocks(clock, time.time),
            rng=rng(),
        )

    @cached_property
    def site_reporter(self) -> SiteReporter:
        return SiteReporter(
            self.api,
            site=self.copies.site,
            jobs=self.copies.jobs,
            discovery=self.copies.discovery,
            unsurveyed=lambda: self.surveyor.problems,
            nodes=self.copies.nodes.records,
            clock=clock,
        )

    @cached_property
    def actuator(self) -> Actuator:
        rendering = Rendering(self.copies.jobs, launcher=self.launcher)
        return Actuator(
            self.api,
            pods=self.copies.pods,
            render_pod=rendering.pod,
            render_placement=lambda e: rendering.placement(e, epoch=self.ledger.ledger.epoch),
            wake=self.awake.set,
            clock=clock,
            rng=rng(),
        )

    @cached_property
    def observer(self) -> Observer:
        copies = self.copies
        return Observer(
            jobs=copies.jobs,
            site=copies.site,
            pods=copies.pod_index,
            discovery=copies.discovery,
            machines=Machines(copies.nodes.records, copies.pod_index),
            pulls=copies.pulls,
            sessions=self.received.sessions,
            kubelets=self.kubelets,
            actuator=self.actuator,
            pre_runs=self.pre_runs,
            clock=self.listening,
            hearing=self.received.hearing,
        )

    @cached_property
    def server(self) -> HeartbeatServer:
        records, received = self.copies.pods, self.received
        return HeartbeatServer(
            received.sessions,
            state.tokens(received, records.records, metrics=self.series.heartbeats),
            audience_of=pods.audience,
            pod_uid_of=self.copies.pod_index.uid_of,
            on_commit=self.commits.ask,
            is_ready=lambda: self.is_leader() and records.synced and received.keys.known,
            hearing=received.hearing,
            metrics=self.series.heartbeats,
            agents=Agents(
                account=f"system:serviceaccount:{self.settings.namespace}:{AGENT}",
                on_inside=self.copies.discovery.inside_told,
                errands=received.errands,
            ),
            clock=clock,
        )

    @cached_property
    def reporter(self) -> Reporter:
        return Reporter(
            self.api,
            jobs=self.copies.jobs,
            sessions=self.received.sessions,
            commits=self.commits,
            events=self.events,
            faults=self.faults,
            metrics=self.counts,
            observer=self.observer,
            wake=self.awake.set,
            clock=clock,
            rng=rng(),
        )

    @cached_property
    def cycle(self) -> Cycle:
        return Cycle(
            self.observer,
            ledger=self.ledger,
            actuator=self.actuator,
            pre_runs=self.pre_runs,
            reporter=self.reporter,
            faults=self.faults,
            watchdog=self.watchdog,
            metrics=self.counts,
            awake=self.awake,
            clock=clock,
            rng=rng(),
        )


def rng() -> random.Random:
    """Randomness for spreading retries; nothing is decided by it."""
    return random.Random()  # noqa: S311
