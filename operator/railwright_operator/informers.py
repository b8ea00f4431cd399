"""Construct the informers of all watched kinds, and the indexes over them, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from railwright_api import names, routes
from railwright_kube import paths, protobuf
from railwright_kube.client import Api
from railwright_kube.metrics import WatchMetrics
from railwright_kube.reflector import Reflector
from railwright_kube.verified import VerifiedReflector
from railwright_kube.watching import Watching
from railwright_operator.watch import job_objects, owned, records, site
from railwright_operator.watch.interconnect import InterconnectCache
from railwright_operator.watch.job_objects import JobObject
from railwright_operator.watch.jobs import Jobs
from railwright_operator.watch.owned import PlacementRecord, ProfileRecord
from railwright_operator.watch.pod_index import PodIndex
from railwright_operator.watch.records import PodRecord
from railwright_operator.watch.site import Site
from railwright_operator.watch.start_events import EVENTS, PATH, REASONS, WATCH_S, StartEvents
from railwright_operator.write import pods
from railwright_watch import cluster_objects, node_healths, nodes
from railwright_watch.cluster_objects import SiteObject
from railwright_watch.node_healths import HealthRecord, NodeHealths
from railwright_watch.nodes import NodeRecord


@dataclass(frozen=True, slots=True)
class Informers:
    """All informers, and the indexes over them.

    A standby keeps some of them ``warm``, but not pods and jobs. A leader must list pods after it
    raised the ledger's epoch, so that no earlier leader can bind a pod that is not in the list; and
    jobs can be large.
    """

    jobs: Jobs
    site: Site
    pod_index: PodIndex
    interconnect: InterconnectCache
    healths: NodeHealths
    job_objects: Reflector[JobObject]
    placement_objects: Reflector[PlacementRecord]
    profiles: Reflector[ProfileRecord]
    queues: Reflector[SiteObject]
    fabrics: Reflector[SiteObject]
    classes: tuple[Reflector[SiteObject], ...]
    pods: VerifiedReflector[PodRecord]
    nodes: VerifiedReflector[NodeRecord]
    health_objects: Reflector[HealthRecord]
    start_events: StartEvents
    event_watches: tuple[Reflector[Any], ...]

    @property
    def warm(self) -> tuple[Reflector[Any], ...]:
        """The informers that run from the start, on standbys too."""
        return self.nodes, self.health_objects, self.fabrics

    @property
    def leading(self) -> tuple[Reflector[Any], ...]:
        """The informers that start once this process leads."""
        ours = self.job_objects, self.placement_objects, self.profiles
        return self.pods, *ours, *self.classes, self.queues

    def absorb_queue(self, raw: Mapping[str, Any]) -> None:
        """Take in a Queue from the response to a write. Raises ValueError."""
        self.queues.absorb(cluster_objects.answered(raw))

    async def follow_start_events(self) -> None:
        """Watch the events of starting pods until cancelled, once pods are listed."""
        await self.pods.wait_synced()
        await asyncio.gather(*(events.run() for events in self.event_watches))


def assemble(
    api: Api,
    *,
    launcher: pods.Launcher,
    series: WatchMetrics,
    wake: Callable[[], None],
    clock: Callable[[], float],
    reception_clock: Callable[[], float],
    rng: Callable[[], Random],
) -> Informers:
    """Construct all informers. ``clock`` is monotonic seconds, ``reception_clock`` the same while
    messages are received; ``rng`` makes a random source for retries."""
    watching = Watching(api, series, wake, clock, rng)
    jobs, chosen = Jobs(lambda raw, role: pods.sample(raw, role, launcher)), Site()
    pod_index = PodIndex(jobs.namespace_of, jobs.layout_of)
    interconnect, healths = InterconnectCache(), NodeHealths()
    start_events = StartEvents(
        lambda uid: reflected.records.get(uid), wake=wake, clock=reception_clock
    )
    reflected = _pod_objects(watching, pod_index, start_events)
    return Informers(
        jobs=jobs,
        site=chosen,
        pod_index=pod_index,
        interconnect=interconnect,
        healths=healths,
        job_objects=_job_objects(watching, jobs),
        placement_objects=_placement_objects(watching, jobs),
        profiles=watching.reflect(
            routes.kind(names.PROFILES), owned.PROFILES, owned.profile, jobs.profile_changed
        ),
        queues=_site_objects(watching, chosen, names.QUEUES),
        fabrics=watching.reflect(
            routes.kind(names.FABRICS),
            cluster_objects.FABRICS,
            cluster_objects.site_object,
            interconnect.fabric_changed,
            wakes=interconnect.is_news,
        ),
        classes=(
            _site_objects(watching, chosen, site.PRIORITY_CLASSES),
            _site_objects(watching, chosen, site.RUNTIME_CLASSES),
        ),
        pods=reflected,
        nodes=watching.reflect(
            paths.NODES,
            protobuf.NODE,
            nodes.node,
            lasting=nodes.with_held_amounts,
        ),
        health_objects=_health_objects(watching, healths),
        start_events=start_events,
        event_watches=_event_watches(watching, start_events),
    )


def _pod_objects(
    watching: Watching, pod_index: PodIndex, start_events: StartEvents
) -> VerifiedReflector[PodRecord]:
    return watching.reflect(
        paths.PODS,
        protobuf.POD,
        records.pod,
        pod_index.change,
        start_events.pod_changed,
        wakes=records.is_decisive,
        lasting=records.still_bound,
    )


def _job_objects(watching: Watching, jobs: Jobs) -> Reflector[JobObject]:
    return watching.reflect(
        routes.kind(names.TRAINING_JOBS),
        job_objects.JOBS,
        job_objects.parse,
        jobs.changed,
        wakes=jobs.is_news,
        lasting=job_objects.with_held_spec,
    )


def _placement_objects(watching: Watching, jobs: Jobs) -> Reflector[PlacementRecord]:
    return watching.reflect(
        routes.kind(names.PLACEMENTS),
        owned.PLACEMENTS,
        owned.placement,
        jobs.placement_changed,
        wakes=lambda old, new: False,
    )


def _health_objects(watching: Watching, healths: NodeHealths) -> Reflector[HealthRecord]:
    return watching.reflect(
        routes.kind(names.NODE_HEALTHS),
        node_healths.PROJECTION,
        node_healths.record,
        healths.change,
        wakes=node_healths.is_decisive,
    )


def _site_objects(watching: Watching, chosen: Site, plural: str) -> Reflector[SiteObject]:
    return watching.reflect(
        site.PATHS[plural],
        site.PROJECTIONS[plural],
        cluster_objects.site_object,
        partial(chosen.change, plural),
        wakes=site.is_decisive,
    )


def _event_watches(watching: Watching, held: StartEvents) -> tuple[Reflector[Any], ...]:
    """A watch for each reason: a field selector cannot choose several."""
    return tuple(
        watching.reflect(PATH, EVENTS, held.read, query=held.query(reason), watch_s=WATCH_S)
        for reason in REASONS
    )
