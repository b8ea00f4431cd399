"""What the site's administrators set: queues, the Fabric, priority classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from msgspec import Struct

from railwright_api import names, schema
from railwright_api.fabric import Probing
from railwright_operator.watch import projections
from railwright_operator.watch.projections import Identity, PriorityClass
from railwright_scheduler.decisions import PriorityClassMissing

PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
CLASSES = projections.of(PriorityClass)


class ClusterObject(Struct, frozen=True):
    """What is decoded of a Queue or a Fabric: later versions may have other fields."""

    metadata: Identity
    spec: Any = None
    status: Any = None


OBJECTS = {
    names.QUEUES: projections.of(ClusterObject, kind="Queue"),
    names.FABRICS: projections.of(ClusterObject, kind="Fabric"),
}


@dataclass(frozen=True, slots=True)
class SiteObject:
    """A Queue or a Fabric."""

    uid: str
    name: str
    rv: int = field(compare=False)
    spec: Mapping[str, Any]
    status: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PriorityClassRecord:
    """A PriorityClass: a name for a number."""

    uid: str
    name: str
    value: int
    rv: int = field(compare=False)


R = TypeVar("R", SiteObject, PriorityClassRecord)


def site_object(found: ClusterObject) -> SiteObject:
    """The record of a Queue or a Fabric."""
    metadata = found.metadata
    version = int(metadata.resource_version)
    return SiteObject(
        metadata.uid, metadata.name, version, spec=found.spec or {}, status=found.status or {}
    )


def answered(raw: Mapping[str, Any]) -> SiteObject:
    """The record of a Queue or a Fabric that answers a write. Raises ValueError."""
    return site_object(projections.converted(raw, ClusterObject))


def priority_class(found: PriorityClass) -> PriorityClassRecord:
    """The record of a PriorityClass."""
    metadata = found.metadata
    version = int(metadata.resource_version)
    return PriorityClassRecord(metadata.uid, metadata.name, found.value, rv=version)


def is_spec_change(old: SiteObject | None, new: SiteObject | None) -> bool:
    """Whether a change is more than a status: that is the operator's own."""
    return old is None or new is None or old.spec != new.spec


class Site:
    """The queues, the Fabric and the priority classes, by name; None stands for absence."""

    def __init__(self) -> None:
        self._queues: dict[str, SiteObject] = {}
        self._fabrics: dict[str, SiteObject] = {}
        self._classes: dict[str, PriorityClassRecord] = {}

    def __repr__(self) -> str:
        return f"<Site queues={self.queues} levels={self.levels}>"

    @property
    def queues(self) -> tuple[str, ...]:
        """The names of all queues, sorted."""
        return tuple(sorted(self._queues))

    @property
    def levels(self) -> tuple[str, ...]:
        """The node labels of the site's own choice that name domains, the coarsest first."""
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
        """The Fabric named ``default``; no other one counts."""
        return self._fabrics.get(names.SINGLETON)

    def queue(self, name: str) -> SiteObject | None:
        """The queue of this name."""
        return self._queues.get(name)

    def queue_changed(self, old: SiteObject | None, new: SiteObject | None) -> None:
        """Take in a change of a queue."""
        _replace(self._queues, old, new)

    def fabric_changed(self, old: SiteObject | None, new: SiteObject | None) -> None:
        """Take in a change of a Fabric."""
        _replace(self._fabrics, old, new)

    def class_changed(
        self, old: PriorityClassRecord | None, new: PriorityClassRecord | None
    ) -> None:
        """Take in a change of a PriorityClass."""
        _replace(self._classes, old, new)

    def priority(self, name: str | None) -> int:
        """The value of a class; 0 without one, and for one that does not exist."""
        return self._classes[name].value if name and name in self._classes else 0

    def missing_class(self, name: str | None) -> PriorityClassMissing | None:
        """Why a job with this class cannot be queued; None when it can."""
        if not name or name in self._classes:
            return None
        return PriorityClassMissing(name, tuple(sorted(self._classes)))


def _replace(held: dict[str, R], old: R | None, new: R | None) -> None:
    """An object made again under its name can come before the deletion of the first one."""
    if old is not None and old.name in held and held[old.name].uid == old.uid:
        del held[old.name]
    if new is not None:
        held[new.name] = new
