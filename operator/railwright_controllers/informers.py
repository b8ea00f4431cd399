"""Construct the informers of the controllers, and the caches over them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from railwright_api import names, routes
from railwright_controllers.discovery import Discovery
from railwright_controllers.watch import files
from railwright_controllers.watch import pods as running_pods
from railwright_controllers.watch.fabric import FabricCache
from railwright_controllers.watch.files import FilesRecord
from railwright_controllers.watch.kopf_informer import KopfInformer
from railwright_controllers.watch.pods import BusyNodes, RunningPod
from railwright_kube import paths, protobuf
from railwright_kube.client import Api
from railwright_kube.metrics import WatchMetrics
from railwright_kube.reflector import Reflector
from railwright_kube.watching import Watching
from railwright_watch import cluster_objects, node_healths, nodes
from railwright_watch.node_healths import HealthRecord
from railwright_watch.nodes import NodeRecord

LATE_S = 180.0
"""A watch has an event or a bookmark about once a minute, and kopf's cache a list."""


@dataclass(frozen=True, slots=True)
class ControllerInformers:
    """All informers, and the caches over them."""

    fabric: FabricCache
    discovery: Discovery
    busy: BusyNodes
    fabrics: KopfInformer
    nodes: Reflector[NodeRecord]
    pods: Reflector[RunningPod]
    healths: Reflector[HealthRecord]
    files: Reflector[FilesRecord]

    @property
    def all(self) -> tuple[Reflector[Any], ...]:
        """The informers."""
        return self.fabrics, self.nodes, self.pods, self.healths, self.files

    def late(self) -> tuple[str, ...]:
        """What was not received for so long that the cache may be old, a sentence each."""
        return tuple(
            f"nothing was received of {informer.kind}s for more than {LATE_S / 60:.0f} minutes"
            for informer in self.all
            if informer.receive_age_s() > LATE_S
        )


def assemble(
    api: Api,
    *,
    namespace: str,
    series: WatchMetrics,
    clock: Callable[[], float],
    rng: Callable[[], Random],
) -> ControllerInformers:
    """Construct all informers. ``clock`` is monotonic seconds; ``rng`` makes a random source for
    retries. The files of the site are ConfigMaps in ``namespace``."""
    watching = Watching(api, series, _nothing, clock, rng)
    fabric, busy = FabricCache(), BusyNodes()
    discovery = Discovery(fabric, healths=lambda: healths.records.values(), clock=clock)
    healths = watching.reflect(
        routes.kind(names.NODE_HEALTHS), node_healths.PROJECTION, node_healths.record
    )
    return ControllerInformers(
        fabric=fabric,
        discovery=discovery,
        busy=busy,
        fabrics=KopfInformer(
            api,
            routes.kind(names.FABRICS),
            projection=cluster_objects.FABRICS,
            parse=cluster_objects.site_object,
            on_change=fabric.change,
            metrics=series,
            clock=clock,
            rng=rng(),
        ),
        nodes=watching.reflect(
            paths.NODES,
            protobuf.NODE,
            nodes.node,
            discovery.node_changed,
            lasting=nodes.with_held_amounts,
        ),
        pods=watching.reflect(paths.PODS, protobuf.POD, running_pods.record, busy.change),
        healths=healths,
        files=watching.reflect(
            paths.config_maps(namespace),
            files.CONFIG_MAPS,
            files.record,
            discovery.files_changed,
            query=files.SELECTOR,
        ),
    )


def _nothing() -> None:
    """Do nothing: the callbacks of the caches start all further work."""
