"""The objects of the site's administrators: queues, priority and runtime classes."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from railwright_api import names, routes
from railwright_kube import projections
from railwright_scheduler.model.reasons import PriorityClassNotFound, RuntimeClassNotFound
from railwright_watch.cluster_objects import ClusterObject

PRIORITY_CLASSES = "priorityclasses"
RUNTIME_CLASSES = "runtimeclasses"
PATHS = {
    names.QUEUES: routes.kind(names.QUEUES),
    PRIORITY_CLASSES: f"/apis/scheduling.k8s.io/v1/{PRIORITY_CLASSES}",
    RUNTIME_CLASSES: f"/apis/node.k8s.io/v1/{RUNTIME_CLASSES}",
}

PROJECTIONS = {
    names.QUEUES: projections.of(ClusterObject, "Queue"),
    PRIORITY_CLASSES: projections.of(ClusterObject, "PriorityClass"),
    RUNTIME_CLASSES: projections.of(ClusterObject, "RuntimeClass"),
}


def is_decisive(old: ClusterObject | None, new: ClusterObject | None) -> bool:
    """Whether a change affects decisions: one of a status alone does not."""
    if old is None or new is None:
        return True
    return replace(old, metadata=new.metadata, status=new.status) != new


class Site:
    """The queues and the classes, by name."""

    def __init__(self) -> None:
        self._objects: dict[str, dict[str, ClusterObject]] = {plural: {} for plural in PATHS}

    def __repr__(self) -> str:
        return f"<Site queues={self.queues}>"

    @property
    def queues(self) -> tuple[str, ...]:
        """The names of all queues, sorted."""
        return tuple(sorted(self._objects[names.QUEUES]))

    def queue(self, name: str) -> ClusterObject | None:
        """The queue of this name."""
        return self._objects[names.QUEUES].get(name)

    def change(self, plural: str, old: ClusterObject | None, new: ClusterObject | None) -> None:
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

    def runtime_class(self, name: str | None) -> ClusterObject | None:
        """The RuntimeClass of this name; None without a name, and for one that does not exist."""
        return self._objects[RUNTIME_CLASSES].get(name or "")

    def missing_runtime_class(self, named: Iterable[str | None]) -> RuntimeClassNotFound | None:
        """Why no pods with these RuntimeClasses can be created; None when they can."""
        existing = self._objects[RUNTIME_CLASSES]
        missing = next((name for name in named if name and name not in existing), None)
        return RuntimeClassNotFound(missing, tuple(sorted(existing))) if missing else None
