"""Construct the informers of all watched kinds, and the indexes over them, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, TypeVar

from railwright_api import names, routes
from railwright_kube import paths, protobuf
from railwright_kube.client import Api
from railwright_kube.metrics import WatchMetrics
from railwright_kube.projections import F, Projection
from railwright_kube.reflector import Record, Reflector
from railwright_kube.verified import VerifiedReflector
from railwright_operator.discovery import Discovery
from railwright_operator.settings import Settings
from railwright_operator.watch import files, job_objects, node_healths, owned, records, site
from railwright_operator.watch.files import FilesRecord
from railwright_operator.watch.interconnect import InterconnectCache
from railwright_operator.watch.job_objects import JobObject
from railwright_operator.watch.jobs import Jobs
from railwright_operator.watch.kinds import KopfInformer
from railwright_operator.watch.node_healths import HealthRecord, NodeHealths
from railwright_operator.watch.owned import PlacementRecord, ProfileRecord
from railwright_operator.watch.pod_index import PodIndex
from railwright_operator.watch.pulls import EVENTS, PATH, PULLED, PULLING, Pulls
from railwright_operator.watch.records import NodeRecord, PodRecord
from railwright_operator.watch.site import Site, SiteObject
from railwright_operator.write import pods

R = TypeVar("R", bound=Record)
Changed = Callable[[R | None, R | None], None]
Wakes = Callable[[R | None, R | None], bool]
"""Whether a change wakes the scheduling cycle at once, instead of at its next tick."""


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
    discovery: Discovery
    interconnect: InterconnectCache
    healths: NodeHealths
    job_objects: Reflector[JobObject]
    placement_objects: Reflector[PlacementRecord]
    profiles: Reflector[ProfileRecord]
    site_objects: Mapping[str, KopfInformer]
    classes: tuple[Reflector[SiteObject], ...]
    pods: VerifiedReflector[PodRecord]
    nodes: VerifiedReflector[NodeRecord]
    health_objects: Reflector[HealthRecord]
    files: Reflector[FilesRecord]
    pulls: Pulls
    pull_events: tuple[Reflector[Any], ...]

    @property
    def warm(self) -> tuple[Reflector[Any], ...]:
        """The informers that run from the start, on standbys too."""
        return self.nodes, self.health_objects, self.files

    @property
    def leading(self) -> tuple[Reflector[Any], ...]:
        """The informers that start once this process leads."""
        ours = self.job_objects, self.placement_objects, self.profiles
        return self.pods, *ours, *self.classes, *self.site_objects.values()

    def seen(self, plural: str, raw: Mapping[str, Any], event: str | None) -> None:
        """Take in a Queue or a Fabric from a kopf event."""
        self.site_objects[plural].seen(raw, event)

    def absorb(self, plural: str, raw: Mapping[str, Any]) -> None:
        """Take in a Queue or a Fabric from the response to a write. Raises ValueError."""
        self.site_objects[plural].absorb(site.answered(raw))

    async def follow_pulls(self) -> None:
        """Watch the events of image pulls until cancelled, once pods are listed."""
        await self.pods.wait_synced()
        await asyncio.gather(*(events.run() for events in self.pull_events))


@dataclass(frozen=True, slots=True)
class _Watching:
    """What all informers are constructed with. Most changes wake the cycle."""

    api: Api
    series: WatchMetrics
    wake: Callable[[], None]
    clock: Callable[[], float]
    rng: Callable[[], Random]

    def reflect(
        self,
        path: str,
        projection: Projection[F],
        parse: Callable[[F], R | None],
        *changed: Changed[R],
        wakes: Wakes[R] = lambda old, new: True,
        lasting: Callable[[R, R], R] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> VerifiedReflector[R]:
        return VerifiedReflector(
            self.api,
            path,
            projection=projection,
            parse=parse,
            on_change=self.on_change(changed, wakes),
            lasting=lasting,
            metrics=self.series,
            clock=self.clock,
            rng=self.rng(),
            query=query,
        )

    def on_change(self, changed: Iterable[Changed[R]], wakes: Wakes[R]) -> Changed[R]:
        """Combine these callbacks, and wake the cycle if ``wakes`` holds."""

        def notify(old: R | None, new: R | None) -> None:
            is_due = wakes(old, new)
            for each in changed:
                each(old, new)
            if is_due:
                self.wake()

        return notify


def assemble(
    api: Api,
    settings: Settings,
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
    watching = _Watching(api, series, wake, clock, rng)
    jobs, chosen = Jobs(lambda raw, role: pods.sample(raw, role, launcher)), Site()
    pod_index = PodIndex(jobs.namespace_of, jobs.layout_of)
    interconnect, healths = InterconnectCache(), NodeHealths()
    discovery = Discovery(chosen, clock=clock)
    pulls = Pulls(lambda uid: reflected.records.get(uid), wake=wake, clock=reception_clock)
    reflected = _pod_objects(watching, pod_index, pulls)
    return Informers(
        jobs=jobs,
        site=chosen,
        pod_index=pod_index,
        discovery=discovery,
        interconnect=interconnect,
        healths=healths,
        job_objects=_job_objects(watching, jobs),
        placement_objects=_placement_objects(watching, jobs),
        profiles=watching.reflect(
            routes.kind(names.PROFILES), owned.PROFILES, owned.profile, jobs.profile_changed
        ),
        site_objects=_kopf_informers(watching, chosen, interconnect),
        classes=_classes(watching, chosen),
        pods=reflected,
        nodes=watching.reflect(
            paths.NODES,
            protobuf.NODE,
            records.node,
            discovery.node_changed,
            lasting=records.with_held_amounts,
        ),
        health_objects=_health_objects(watching, healths),
        files=watching.reflect(
            paths.config_maps(settings.namespace),
            files.CONFIG_MAPS,
            files.record,
            discovery.files_changed,
            query=files.SELECTOR,
        ),
        pulls=pulls,
        pull_events=_pull_events(watching, pulls),
    )


def _pod_objects(
    watching: _Watching, pod_index: PodIndex, pulls: Pulls
) -> VerifiedReflector[PodRecord]:
    return watching.reflect(
        paths.PODS,
        protobuf.POD,
        records.pod,
        pod_index.change,
        pulls.pod_changed,
        wakes=records.is_decisive,
        lasting=records.still_bound,
    )


def _job_objects(watching: _Watching, jobs: Jobs) -> Reflector[JobObject]:
    return watching.reflect(
        routes.kind(names.TRAINING_JOBS),
        job_objects.JOBS,
        job_objects.parse,
        jobs.changed,
        wakes=jobs.is_news,
        lasting=job_objects.with_held_spec,
    )


def _placement_objects(watching: _Watching, jobs: Jobs) -> Reflector[PlacementRecord]:
    return watching.reflect(
        routes.kind(names.PLACEMENTS),
        owned.PLACEMENTS,
        owned.placement,
        jobs.placement_changed,
        wakes=lambda old, new: False,
    )


def _health_objects(watching: _Watching, healths: NodeHealths) -> Reflector[HealthRecord]:
    return watching.reflect(
        routes.kind(names.NODE_HEALTHS),
        node_healths.PROJECTION,
        node_healths.record,
        healths.change,
        wakes=node_healths.is_decisive,
    )


def _classes(watching: _Watching, chosen: Site) -> tuple[Reflector[SiteObject], ...]:
    return tuple(
        watching.reflect(
            site.PATHS[plural],
            site.PROJECTIONS[plural],
            site.site_object,
            partial(chosen.change, plural),
            wakes=site.is_decisive,
        )
        for plural in (site.PRIORITY_CLASSES, site.RUNTIME_CLASSES)
    )


def _kopf_informers(
    watching: _Watching, chosen: Site, interconnect: InterconnectCache
) -> Mapping[str, KopfInformer]:
    beside = {names.QUEUES: (), names.FABRICS: (interconnect.fabric_changed,)}
    return {
        plural: KopfInformer(
            watching.api,
            site.PATHS[plural],
            projection=site.PROJECTIONS[plural],
            parse=site.site_object,
            on_change=watching.on_change(
                (partial(chosen.change, plural), *beside[plural]), site.is_decisive
            ),
            metrics=watching.series,
            clock=watching.clock,
            rng=watching.rng(),
        )
        for plural in (names.QUEUES, names.FABRICS)
    }


def _pull_events(watching: _Watching, pulls: Pulls) -> tuple[Reflector[Any], ...]:
    return tuple(
        watching.reflect(PATH, EVENTS, pulls.read, query=pulls.query(reason))
        for reason in (PULLING, PULLED)
    )
