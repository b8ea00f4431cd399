"""Every moving part of the operator, constructed in order: the table of contents.

    Leadership   a thread: the Lease, and with it who may write
    KopfThread   a thread: queues or Fabrics changed, look again
    Api          the one client to the API server
    Informers    caches of TrainingJobs, Pods, Nodes, Queues, Fabrics, PriorityClasses, files
    Discovery    the fabric, put together from labels, files and what agents tell
    NodeLeaseChecker  the Leases of suspected nodes
    PreRuns      the small gangs ahead of large jobs
    heartbeats   the server that launchers and agents speak to
    Surveyor     sends agents to each other where nobody says how nodes stand
    Cycle        observe, plan, ledger, act, tell
    Verification holds informers and invariants against fresh lists now and then
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
from dataclasses import dataclass
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry

from railwright_operator import informers as caches
from railwright_operator import metrics
from railwright_operator.cycle import Cycle
from railwright_operator.faults import JobFaults, WriteMark
from railwright_operator.heartbeats import state
from railwright_operator.heartbeats.agents import Agents
from railwright_operator.heartbeats.errands import Errands
from railwright_operator.heartbeats.keys import PublishedKeys
from railwright_operator.heartbeats.server import HeartbeatServer
from railwright_operator.heartbeats.sessions import Sessions
from railwright_operator.heartbeats.state import HeartbeatState
from railwright_operator.informers import Informers
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
from railwright_operator.watch import node_leases
from railwright_operator.watch.node_leases import NodeLeaseChecker
from railwright_operator.watchdog import CycleWatchdog
from railwright_operator.write import pods, probes
from railwright_operator.write.actuate import Actuator
from railwright_operator.write.ledger import LedgerStore
from railwright_operator.write.rendering import Rendering

clock = time.monotonic

AGENT = "railwright-agent"
"""The service account that agents on nodes have, in the operator's namespace."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a run starts and asks. ``tasks`` run from the start, ``leading`` only in a leader."""

    cycle: Cycle
    watchdog: CycleWatchdog
    informers: Informers
    keys: PublishedKeys
    server: HeartbeatServer
    tasks: tuple[Callable[[], Coroutine[Any, Any, None]], ...]
    leading: tuple[Callable[[], Coroutine[Any, Any, None]], ...]


def assemble(
    api: Api,
    settings: Settings,
    *,
    registry: CollectorRegistry,
    series: metrics.Metrics,
    is_leader: Callable[[], bool],
    mark_hung: WriteMark,
    give_up_lease: Callable[[], None],
) -> Parts:
    """Construct all parts; nothing runs yet."""
    awake, listening = asyncio.Event(), ListeningClock(clock)
    launcher = pods.Launcher(settings.launcher_image, settings.heartbeat_url)
    heard = state.construct(api, wake=awake.set, clock=clock, rng=rng())
    sessions, commits = heard.sessions, Commits(awake.set)
    watch = partial(caches.assemble, launcher=launcher, listening=heard.hearing, clock=clock)
    informers = watch(api, settings, series=series.watch, wake=awake.set, rng=rng)
    surveyor = _surveyor(api, informers, settings, heard.errands, series.surveys)
    counts = CycleMetrics(registry)
    ledger = LedgerStore(api, holder=settings.identity)
    actuator = _actuator(api, informers, ledger=ledger, launcher=launcher, wake=awake.set)
    lease_checker = NodeLeaseChecker(node_leases.lease_of(api), clock=clock, wake=awake.set)
    pre_runs = PreRuns(api, jobs=informers.jobs, wake=awake.set, clock=clock, rng=rng())
    observer = _observer(informers, heard, lease_checker, actuator, pre_runs, listening)
    faults = JobFaults(informers.jobs, raised=counts.job_faults, clock=clock, rng=rng())
    mark = partial(faults.leave_mark, mark_hung)
    watchdog = CycleWatchdog(mark=mark, release=give_up_lease)
    events = Events(api, instance=settings.identity, dropped=counts.events_dropped, clock=clock)
    reporter = _reporter(api, informers, sessions, commits, events, faults, counts, observer, awake)
    cycle = Cycle(
        observer,
        ledger=ledger,
        actuator=actuator,
        pre_runs=pre_runs,
        reporter=reporter,
        faults=faults,
        watchdog=watchdog,
        metrics=counts,
        awake=awake,
        clock=clock,
        rng=rng(),
    )
    server = _server(
        informers, settings, heard, commits, series=series.heartbeats, is_leader=is_leader
    )
    warm = [informer.run for informer in informers.warm]
    verified = Verification(
        informers, ledger=lambda: ledger.ledger, violations=counts.violations, clock=clock
    )
    network = informers.discovery.run, _sites(api, informers, surveyor).run, surveyor.run
    leading = lease_checker.run, events.run, informers.follow_pulls, verified.run
    return Parts(
        cycle=cycle,
        watchdog=watchdog,
        informers=informers,
        keys=heard.keys,
        server=server,
        tasks=(*warm, heard.keys.run, lambda: loop_lag.observe(series, clock, listening)),
        leading=(*leading, *network),
    )


def _surveyor(
    api: Api,
    informers: Informers,
    settings: Settings,
    errands: Errands,
    series: metrics.SurveyMetrics,
) -> Surveyor:
    nodes = informers.nodes.records
    return Surveyor(
        errands,
        site=informers.site,
        discovery=informers.discovery,
        nodes=nodes,
        busy=lambda: busy.of(
            (node.name for node in nodes.values()), informers.jobs, informers.pod_index
        ),
        keep=lambda text: probes.keep(api, settings.namespace, text),
        metrics=series,
        clocks=Clocks(clock, time.time),
        rng=rng(),
    )


def _sites(api: Api, informers: Informers, surveyor: Surveyor) -> SiteReporter:
    return SiteReporter(
        api,
        site=informers.site,
        jobs=informers.jobs,
        discovery=informers.discovery,
        unsurveyed=lambda: surveyor.problems,
        absorb=informers.absorb,
        nodes=informers.nodes.records,
        clock=clock,
    )


def _actuator(
    api: Api,
    informers: Informers,
    *,
    ledger: LedgerStore,
    launcher: pods.Launcher,
    wake: Callable[[], None],
) -> Actuator:
    rendering = Rendering(informers.jobs, launcher=launcher)
    return Actuator(
        api,
        pods=informers.pods,
        render_pod=rendering.pod,
        render_placement=lambda entry: rendering.placement(entry, epoch=ledger.ledger.epoch),
        wake=wake,
        clock=clock,
        rng=rng(),
    )


def _observer(
    informers: Informers,
    heard: HeartbeatState,
    kubelets: NodeLeaseChecker,
    actuator: Actuator,
    pre_runs: PreRuns,
    listening: ListeningClock,
) -> Observer:
    return Observer(
        jobs=informers.jobs,
        site=informers.site,
        pods=informers.pod_index,
        discovery=informers.discovery,
        machines=Machines(informers.nodes.records, informers.pod_index),
        pulls=informers.pulls,
        sessions=heard.sessions,
        kubelets=kubelets,
        actuator=actuator,
        pre_runs=pre_runs,
        clock=listening,
        hearing=heard.hearing,
    )


def _server(
    informers: Informers,
    settings: Settings,
    heard: HeartbeatState,
    commits: Commits,
    *,
    series: metrics.HeartbeatMetrics,
    is_leader: Callable[[], bool],
) -> HeartbeatServer:
    return HeartbeatServer(
        heard.sessions,
        state.tokens(heard, informers.pods.records, metrics=series),
        audience_of=pods.audience,
        pod_uid_of=informers.pod_index.uid_of,
        on_commit=commits.ask,
        is_ready=lambda: is_leader() and informers.pods.synced and heard.keys.known,
        hearing=heard.hearing,
        metrics=series,
        agents=Agents(
            account=f"system:serviceaccount:{settings.namespace}:{AGENT}",
            on_inside=informers.discovery.receive_report,
            errands=heard.errands,
        ),
        clock=clock,
    )


def _reporter(
    api: Api,
    informers: Informers,
    sessions: Sessions,
    commits: Commits,
    events: Events,
    faults: JobFaults,
    counts: CycleMetrics,
    observer: Observer,
    awake: asyncio.Event,
) -> Reporter:
    return Reporter(
        api,
        jobs=informers.jobs,
        sessions=sessions,
        commits=commits,
        events=events,
        faults=faults,
        metrics=counts,
        observer=observer,
        wake=awake.set,
        clock=clock,
        rng=rng(),
    )


def rng() -> random.Random:
    """Randomness for spreading retries; nothing is decided by it."""
    return random.Random()  # noqa: S311
