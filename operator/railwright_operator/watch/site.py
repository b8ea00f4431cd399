"""The objects of the site's administrators: queues, the Fabric, priority and runtime classes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Struct

from railwright_api import names, routes, schema
from railwright_api.fabric import Probing
from railwright_kube import projections
from railwright_kube.projections import Identity
from railwright_scheduler.model.reasons import PriorityClassNotFound, RuntimeClassNotFound

PRIORITY_CLASSES = "priorityclasses"
RUNTIME_CLASSES = "runtimeclasses"
PATHS = {
    names.QUEUES: routes.kind(names.QUEUES),
    names.FABRICS: routes.kind(names.FABRICS),
    PRIORITY_CLASSES: f"/apis/scheduling.k8s.io/v1/{PRIORITY_CLASSES}",
    RUNTIME_CLASSES: f"/apis/node.k8s.io/v1/{RUNTIME_CLASSES}",
}


class ClusterObject(Struct, frozen=True):
    """The decoded fields of a Queue, a Fabric, a PriorityClass (``value``, ``global_default``) or a
    RuntimeClass (``overhead``, ``scheduling``). Later versions may have other fields."""

    metadata: Identity
    spec: Any = None
    status: Any = None
    value: int = 0
    global_default: bool = msgspec.field(name="globalDefault", default=False)
    overhead: Any = None
    scheduling: Any = None


PROJECTIONS = {
    names.QUEUES: projections.of(ClusterObject, "Queue"),
    names.FABRICS: projections.of(ClusterObject, "Fabric"),
    PRIORITY_CLASSES: projections.of(ClusterObject, "PriorityClass"),
    RUNTIME_CLASSES: projections.of(ClusterObject, "RuntimeClass"),
}


@dataclass(frozen=True, slots=True)
class SiteObject:
    """A Queue or a Fabric with ``spec`` and ``status``, a PriorityClass with its ``value``, whether
    or not it is the default of the cluster, or a RuntimeClass with its ``overhead`` and
    ``scheduling``."""

    uid: str
    name: str
    rv: int = field(compare=False)
    spec: Mapping[str, Any] = field(default_factory=dict)
    status: Mapping[str, Any] = field(default_factory=dict)
    value: int = 0
    is_default: bool = False
    overhead: Mapping[str, Any] = field(default_factory=dict)
    scheduling: Mapping[str, Any] = field(default_factory=dict)


def site_object(found: ClusterObject) -> SiteObject:
    """The record of an object."""
    metadata = found.metadata
    return SiteObject(
        metadata.uid,
        metadata.name,
        int(metadata.resource_version),
        spec=found.spec or {},
        status=found.status or {},
        value=found.value,
        is_default=found.global_default,
        overhead=found.overhead or {},
        scheduling=found.scheduling or {},
    )


def answered(raw: Mapping[str, Any]) -> SiteObject:
    """The record of a Queue or a Fabric from the response to a write. Raises ValueError."""
    return site_object(projections.converted(raw, ClusterObject))


def is_decisive(old: SiteObject | None, new: SiteObject | None) -> bool:
    """Whether a change affects decisions: a status does so only with the topology in it."""
    return old is None or new is None or _decisive(old) != _decisive(new)


def _decisive(found: SiteObject) -> tuple[Any, ...]:
    topology = found.status.get("topology")
    return found.spec, topology, found.value, found.is_default, found.overhead, found.scheduling


class Site:
    """The queues, the Fabric and the classes, by name."""

    def __init__(self) -> None:
        self._objects: dict[str, dict[str, SiteObject]] = {plural: {} for plural in PATHS}

    def __repr__(self) -> str:
        return f"<Site queues={self.queues} levels={self.levels}>"

    @property
    def queues(self) -> tuple[str, ...]:
        """The names of all queues, sorted."""
        return tuple(sorted(self._objects[names.QUEUES]))

    @property
    def levels(self) -> tuple[str, ...]:
        """The node labels that the site configured as levels, the coarsest first."""
        return tuple(self.fabric.spec.get("levels") or ()) if self.fabric else ()

    @property
    def agents(self) -> int:
        """The number of node agents in the Fabric's status."""
        status = self.fabric.status if self.fabric else {}
        return int((status.get("agents") or {}).get("nodes", 0))

    @property
    def probing(self) -> Probing:
        """Whether nodes are measured; never without a Fabric."""
        if self.fabric is None:
            return Probing(mode="Never")
        return schema.read(Probing, self.fabric.spec.get("probing") or {})

    @property
    def fabric(self) -> SiteObject | None:
        """The Fabric named ``default``; others are ignored."""
        return self._objects[names.FABRICS].get(names.SINGLETON)

    def queue(self, name: str) -> SiteObject | None:
        """The queue of this name."""
        return self._objects[names.QUEUES].get(name)

    def change(self, plural: str, old: SiteObject | None, new: SiteObject | None) -> None:
        """Take in a change; None means absent.

        An object that is created again may arrive before the deletion of the old one.
        """
        held = self._objects[plural]
        if old is not None and old.name in held and held[old.name].uid == old.uid:
            del held[old.name]
        if new is not None:
            held[new.name] = new

    def priority(self, name: str | None) -> int:
        """The value of a class; without a name that of the cluster's default class, as the API
        server gives it to pods. 0 if there is no such class."""
        classes = self._objects[PRIORITY_CLASSES]
        if not name:
            return min((each.value for each in classes.values() if each.is_default), default=0)
        return classes[name].value if name in classes else 0

    def missing_class(self, name: str | None) -> PriorityClassNotFound | None:
        """Why a job with this class cannot be queued; None when it can."""
        if not name or name in self._objects[PRIORITY_CLASSES]:
            return None
        return PriorityClassNotFound(name, tuple(sorted(self._objects[PRIORITY_CLASSES])))

    def runtime_class(self, name: str | None) -> SiteObject | None:
        """The RuntimeClass of this name; None without a name, and for one that does not exist."""
        return self._objects[RUNTIME_CLASSES].get(name or "")

    def missing_runtime_class(self, named: Iterable[str | None]) -> RuntimeClassNotFound | None:
        """Why no pods with these RuntimeClasses can be created; None when they can."""
        existing = self._objects[RUNTIME_CLASSES]
        missing = next((name for name in named if name and name not in existing), None)
        return RuntimeClassNotFound(missing, tuple(sorted(existing))) if missing else None
