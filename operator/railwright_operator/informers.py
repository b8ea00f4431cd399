"""Construct the informers of all watched kinds, and the indexes over them, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from railwright_api import names, routes
from railwright_kube import paths, protobuf
from railwright_kube.reflector import Reflector
from railwright_kube.watching import Watching
from railwright_operator.watch import job_objects, owned, records, site
from railwright_operator.watch.interconnect import InterconnectCache
from railwright_operator.watch.jobs import Jobs
from railwright_operator.watch.pod_index import PodIndex
from railwright_operator.watch.site import Site
from railwright_operator.watch.start_events import EVENTS, PATH, REASONS, WATCH_S, StartEvents
from railwright_operator.write.rendering import Launcher, sample_pod
from railwright_watch import cluster_objects, node_healths, nodes
from railwright_watch.cluster_objects import ClusterObject
from railwright_watch.node_healths import NodeHealths


class Informers:
    """All informers, and the indexes over them. ``reception_clock`` is monotonic seconds while
    messages are received.

    A standby keeps some of them ``warm``, but not pods and jobs. A leader must list pods after it
    raised the ledger's epoch, so that no earlier leader can bind a pod that is not in the list; and
    jobs can be large.
    """

    def __init__(
        self, watching: Watching, *, launcher: Launcher, reception_clock: Callable[[], float]
    ) -> None:
        self.jobs = Jobs(
            lambda raw, role: sample_pod(raw, role, launcher),
            expect=lambda version: self.job_objects.lag.expect(version),
        )
        self.site, self.interconnect, self.healths = Site(), InterconnectCache(), NodeHealths()
        self.pod_index = PodIndex(self.jobs.namespace_of, self.jobs.layout_of)
        self.start_events = StartEvents(
            lambda uid: self.pods.records.get(uid), wake=watching.wake, clock=reception_clock
        )
        self.pods = watching.reflect(
            paths.PODS,
            protobuf.POD,
            records.pod,
            self.pod_index.change,
            self.start_events.pod_changed,
            wakes=records.is_decisive,
            lasting=records.still_bound,
        )
        self._watch_jobs(watching)
        self._watch_site(watching)
        self._watch_nodes(watching)
        # A watch for each reason: a field selector cannot choose several.
        self.event_watches: tuple[Reflector[Any], ...] = tuple(
            watching.reflect(
                PATH,
                EVENTS,
                self.start_events.read,
                query=self.start_events.query(reason),
                watch_s=WATCH_S,
            )
            for reason in REASONS
        )

    def _watch_jobs(self, watching: Watching) -> None:
        jobs = self.jobs
        self.job_objects = watching.reflect(
            routes.kind(names.TRAINING_JOBS),
            job_objects.JOBS,
            job_objects.parse,
            jobs.changed,
            wakes=jobs.is_news,
            lasting=job_objects.with_held_spec,
        )
        self.placement_objects = watching.reflect(
            routes.kind(names.PLACEMENTS),
            owned.PLACEMENTS,
            owned.placement,
            jobs.placement_changed,
            wakes=lambda old, new: False,
        )
        self.profiles = watching.reflect(
            routes.kind(names.PROFILES), owned.PROFILES, owned.profile, jobs.profile_changed
        )

    def _watch_site(self, watching: Watching) -> None:
        def watch(plural: str) -> Reflector[ClusterObject]:
            return watching.reflect(
                site.PATHS[plural],
                site.PROJECTIONS[plural],
                lambda found: found,
                partial(self.site.change, plural),
                wakes=site.is_decisive,
            )

        self.queues = watch(names.QUEUES)
        self.fabrics = watching.reflect(
            routes.kind(names.FABRICS),
            cluster_objects.FABRICS,
            lambda found: found,
            self.interconnect.fabric_changed,
            wakes=self.interconnect.is_news,
        )
        self.classes = watch(site.PRIORITY_CLASSES), watch(site.RUNTIME_CLASSES)

    def _watch_nodes(self, watching: Watching) -> None:
        self.nodes = watching.reflect(
            paths.NODES, protobuf.NODE, nodes.node, lasting=nodes.with_held_amounts
        )
        self.health_objects = watching.reflect(
            routes.kind(names.NODE_HEALTHS),
            node_healths.PROJECTION,
            node_healths.record,
            self.healths.change,
            wakes=node_healths.is_decisive,
        )

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
