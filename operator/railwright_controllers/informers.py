"""Construct the informers of the controllers, and the caches over them."""

from __future__ import annotations

from typing import Any

from railwright_api import names, routes
from railwright_controllers.discovery import Discovery
from railwright_controllers.watch import files
from railwright_controllers.watch import pods as running_pods
from railwright_controllers.watch.fabric import FabricCache
from railwright_controllers.watch.kopf_informer import KopfInformer
from railwright_controllers.watch.pods import BusyNodes
from railwright_kube import paths, protobuf
from railwright_kube.reflector import Reflector
from railwright_kube.watching import Watching
from railwright_topology.sources.formats import File
from railwright_watch import cluster_objects, node_healths, nodes

LATE_S = 180.0
"""A watch has an event or a bookmark about once a minute, and kopf's cache a list."""


class ControllerInformers:
    """All informers, and the caches over them. The files of the site are ConfigMaps in
    ``namespace``."""

    def __init__(self, watching: Watching, *, namespace: str) -> None:
        self.fabric, self.busy = FabricCache(), BusyNodes()
        self.discovery = Discovery(
            self.fabric, healths=lambda: self.healths.records.values(), clock=watching.clock
        )
        self.healths = watching.reflect(
            routes.kind(names.NODE_HEALTHS), node_healths.PROJECTION, node_healths.record
        )
        self.fabrics = KopfInformer(
            watching.api,
            routes.kind(names.FABRICS),
            projection=cluster_objects.FABRICS,
            parse=lambda found: found,
            on_change=self.fabric.change,
            metrics=watching.series,
            clock=watching.clock,
            rng=watching.rng(),
        )
        self.nodes = watching.reflect(
            paths.NODES,
            protobuf.NODE,
            nodes.node,
            self.discovery.node_changed,
            lasting=nodes.with_held_amounts,
        )
        self.pods = watching.reflect(
            paths.PODS, protobuf.POD, running_pods.record, self.busy.change
        )
        self.files = watching.reflect(
            paths.config_maps(namespace),
            files.CONFIG_MAPS,
            files.record,
            self.discovery.files_changed,
            query=files.SELECTOR,
        )

    @property
    def all(self) -> tuple[Reflector[Any], ...]:
        """The informers."""
        return self.fabrics, self.nodes, self.pods, self.healths, self.files

    def survey_progress(self) -> File | None:
        """The stored progress of a survey, as it is now."""
        records = self.files.records.values()
        return next((each.progress for each in records if each.name == names.PROBES), None)

    def late(self) -> tuple[str, ...]:
        """What was not received for so long that the cache may be old, a sentence each."""
        return tuple(
            f"nothing was received of {informer.kind}s for more than {LATE_S / 60:.0f} minutes"
            for informer in self.all
            if informer.receive_age_s() > LATE_S
        )
