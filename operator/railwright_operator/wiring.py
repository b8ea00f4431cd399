"""Every moving part of the operator, constructed in order: the table of contents.

    Leadership   a thread: the Lease, and with it who may write
    KopfThread   a thread: our kinds changed, look again
    Api          the one client to the API server
    reflectors   copies of Pods, Nodes, PriorityClasses, files about the network
    Discovery    the fabric, put together from labels, files and what agents tell
    Kubelets     the Leases of suspected nodes
    PreRuns      the small gangs ahead of large jobs
    heartbeats   the server that launchers and agents speak to
    Surveyor     sends agents to each other where nobody says how nodes stand
    Cycle        observe, plan, ledger, act, tell
    reporters    statuses and events
    Endpoints    probes and metrics

A leader that loses its Lease, or finds the ledger written by another, ends the process: what it
holds it decided as the leader.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry

from railwright_operator import metrics
from railwright_operator.cycle import Cycle
from railwright_operator.discovery import Discovery
from railwright_operator.heartbeats.agents import Agents
from railwright_operator.heartbeats.errands import Errands
from railwright_operator.heartbeats.server import HeartbeatServer
from railwright_operator.heartbeats.sessions import Sessions
from railwright_operator.heartbeats.tokens import Tokens
from railwright_operator.kube import errors, paths
from railwright_operator.kube.client import Api
from railwright_operator.machines import Machines
from railwright_operator.observe import Observer
from railwright_operator.pre_runs import PreRuns
from railwright_operator.report import loop_lag
from railwright_operator.report.commits import Commits
from railwright_operator.report.cycle_metrics import CycleMetrics
from railwright_operator.report.events import Events
from railwright_operator.report.reporter import Reporter
from railwright_operator.report.site import SiteReporter
from railwright_operator.settings import Settings
from railwright_operator.surveys import busy
from railwright_operator.surveys.surveyor import Clocks, Surveyor
from railwright_operator.watch import files, protobuf, records, site
from railwright_operator.watch.excerpts import Excerpt, F
from railwright_operator.watch.files import FilesRecord
from railwright_operator.watch.jobs import Jobs
from railwright_operator.watch.kinds import Kinds
from railwright_operator.watch.kubelets import Kubelets
from railwright_operator.watch.nodes import Nodes
from railwright_operator.watch.pod_index import PodIndex
from railwright_operator.watch.records import NodeRecord, PodRecord
from railwright_operator.watch.reflector import Record, Reflector
from railwright_operator.watch.site import PriorityClassRecord, Site
from railwright_operator.write import pods, probes
from railwright_operator.write.actuate import Actuator
from railwright_operator.write.ledger import LedgerStore
from railwright_operator.write.rendering import Rendering

clock = time.monotonic

AGENT = "railwright-agent"
"""The service account that agents on nodes have, in the operator's namespace."""

R = TypeVar("R", bound=Record)
Changed = Callable[[R | None, R | None], None]


@dataclass(frozen=True, slots=True)
class Copies:
    """What is watched, and the indexes over it.

    Standbys keep some of them ``warm`` too, not that of pods: what a leader knows of pods
    must begin with a list it asked for after it raised the ledger's epoch, so that no leader before
    it can still bind a pod that it has not seen.
    """

    jobs: Jobs
    site: Site
    pod_index: PodIndex
    kinds: Kinds
    discovery: Discovery
    pods: Reflector[PodRecord]
    nodes: Reflector[NodeRecord]
    files: Reflector[FilesRecord]
    classes: Reflector[PriorityClassRecord]

    @property
    def warm(self) -> tuple[Reflector[Any], ...]:
        """Those that are kept current from the start, whoever leads."""
        return self.nodes, self.files, self.classes


@dataclass(frozen=True, slots=True)
class Parts:
    """What a run starts and asks. ``tasks`` run from the start, ``leading`` only in a leader."""

    cycle: Cycle
    copies: Copies
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
) -> Parts:
    """Construct all parts; nothing runs yet."""
    awake = asyncio.Event()
    launcher = pods.Launcher(settings.launcher_image, settings.heartbeat_url)
    copies = _copies(api, settings, launcher=launcher, series=series.watch, wake=awake.set)
    sessions = Sessions(clock=clock, wake=awake.set)
    commits, errands = Commits(awake.set), Errands(clock)
    surveyor = _surveyor(api, copies, settings, errands, series.surveys)
    counts = CycleMetrics(registry)
    ledger = LedgerStore(api, holder=settings.identity)
    actuator = _actuator(api, copies, ledger=ledger, launcher=launcher, wake=awake.set)
    kubelets = Kubelets(_lease_of(api), clock=clock, wake=awake.set)
    pre_runs = PreRuns(api, jobs=copies.jobs, wake=awake.set, clock=clock, rng=rng())
    observer = _observer(
        copies, sessions=sessions, kubelets=kubelets, actuator=actuator, pre_runs=pre_runs
    )
    events = Events(api, instance=settings.identity, dropped=counts.events_dropped, clock=clock)
    reporter = Reporter(
        api,
        jobs=copies.jobs,
        sessions=sessions,
        commits=commits,
        events=events,
        metrics=counts,
        observer=observer,
        wake=awake.set,
        clock=clock,
        rng=rng(),
    )
    cycle = Cycle(
        observer,
        ledger=ledger,
        actuator=actuator,
        pre_runs=pre_runs,
        reporter=reporter,
        metrics=counts,
        awake=awake,
        clock=clock,
        rng=rng(),
    )
    server = _server(
        api, copies, settings, sessions, commits, errands, series=series, is_leader=is_leader
    )
    watching = [copy.run for copy in copies.warm]
    network = copies.discovery.run, _sites(api, copies, surveyor).run, surveyor.run
    return Parts(
        cycle=cycle,
        copies=copies,
        server=server,
        tasks=(*watching, lambda: loop_lag.observe(series, clock)),
        leading=(kubelets.run, events.run, copies.kinds.run, *network),
    )


@dataclass(frozen=True, slots=True)
class _Watching:
    """What all copies are kept with; news of any wakes the cycle."""

    api: Api
    series: metrics.WatchMetrics
    wake: Callable[[], None]

    def reflect(
        self,
        path: str,
        excerpt: Excerpt[F],
        parse: Callable[[F], R],
        *changed: Changed[R],
        lasting: Callable[[R, R], R] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Reflector[R]:
        def on_change(old: R | None, new: R | None) -> None:
            for each in changed:
                each(old, new)
            self.wake()

        return Reflector(
            self.api,
            path,
            excerpt=excerpt,
            parse=parse,
            on_change=on_change,
            lasting=lasting,
            metrics=self.series,
            clock=clock,
            rng=rng(),
            query=query,
        )


def _copies(
    api: Api,
    settings: Settings,
    *,
    launcher: pods.Launcher,
    series: metrics.WatchMetrics,
    wake: Callable[[], None],
) -> Copies:
    watching = _Watching(api, series, wake)
    jobs, chosen, nodes = Jobs(lambda raw: pods.sample(raw, launcher)), Site(), Nodes()
    pod_index = PodIndex(jobs.namespace_of)

    discovery = Discovery(chosen, wake, clock=clock)
    return Copies(
        jobs=jobs,
        site=chosen,
        pod_index=pod_index,
        kinds=Kinds(api, jobs=jobs, site=chosen, wake=wake, clock=clock),
        discovery=discovery,
        pods=watching.reflect(
            paths.PODS,
            protobuf.POD,
            records.pod,
            pod_index.change,
            lasting=records.still_bound,
        ),
        nodes=watching.reflect(
            paths.NODES, protobuf.NODE, nodes.read, nodes.changed, discovery.node_changed
        ),
        files=watching.reflect(
            paths.config_maps(settings.namespace),
            files.CONFIG_MAPS,
            files.record,
            discovery.files_changed,
            query=files.SELECTOR,
        ),
        classes=watching.reflect(
            site.PRIORITY_CLASSES, site.CLASSES, site.priority_class, chosen.class_seen
        ),
    )


def _surveyor(
    api: Api, copies: Copies, settings: Settings, errands: Errands, series: metrics.SurveyMetrics
) -> Surveyor:
    nodes = copies.nodes.records
    return Surveyor(
        errands,
        site=copies.site,
        discovery=copies.discovery,
        nodes=nodes,
        busy=lambda: busy.of((node.name for node in nodes.values()), copies.jobs, copies.pod_index),
        keep=lambda text: probes.keep(api, settings.namespace, text),
        metrics=series,
        clocks=Clocks(clock, time.time),
        rng=rng(),
    )


def _sites(api: Api, copies: Copies, surveyor: Surveyor) -> SiteReporter:
    return SiteReporter(
        api,
        site=copies.site,
        jobs=copies.jobs,
        discovery=copies.discovery,
        unsurveyed=lambda: surveyor.problems,
        nodes=copies.nodes.records,
        clock=clock,
    )


def _actuator(
    api: Api,
    copies: Copies,
    *,
    ledger: LedgerStore,
    launcher: pods.Launcher,
    wake: Callable[[], None],
) -> Actuator:
    rendering = Rendering(copies.jobs, launcher=launcher)
    return Actuator(
        api,
        pods=copies.pods,
        render_pod=rendering.pod,
        render_placement=lambda entry: rendering.placement(entry, epoch=ledger.ledger.epoch),
        wake=wake,
        clock=clock,
        rng=rng(),
    )


def _observer(
    copies: Copies,
    *,
    sessions: Sessions,
    kubelets: Kubelets,
    actuator: Actuator,
    pre_runs: PreRuns,
) -> Observer:
    return Observer(
        jobs=copies.jobs,
        site=copies.site,
        pods=copies.pod_index,
        discovery=copies.discovery,
        machines=Machines(copies.nodes.records, copies.pod_index),
        sessions=sessions,
        kubelets=kubelets,
        actuator=actuator,
        pre_runs=pre_runs,
        clock=clock,
    )


def _server(
    api: Api,
    copies: Copies,
    settings: Settings,
    sessions: Sessions,
    commits: Commits,
    errands: Errands,
    *,
    series: metrics.Metrics,
    is_leader: Callable[[], bool],
) -> HeartbeatServer:
    tokens = Tokens(api, metrics=series.heartbeats, clock=clock)
    return HeartbeatServer(
        sessions,
        tokens,
        audience_of=pods.audience,
        pod_uid_of=copies.pod_index.uid_of,
        on_commit=commits.ask,
        is_leader=is_leader,
        metrics=series.heartbeats,
        agents=Agents(
            tokens,
            account=f"system:serviceaccount:{settings.namespace}:{AGENT}",
            on_inside=copies.discovery.inside_told,
            errands=errands,
            is_leader=is_leader,
            metrics=series.heartbeats,
        ),
    )


def rng() -> random.Random:
    """Randomness for spreading retries; nothing is decided by it."""
    return random.Random()  # noqa: S311


def _lease_of(api: Api) -> Callable[[str], Coroutine[Any, Any, dict[str, Any] | None]]:
    async def ask(node: str) -> dict[str, Any] | None:
        try:
            lease: dict[str, Any] = await api.get(paths.kubelet_lease(node), deadline_s=3.0)
        except errors.NotFoundError:
            return None
        return lease

    return ask
