"""All collections of the simulated API server: versions, changes, and who is called after them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from simulator.garbage import OwnerIndex
from simulator.resources import RESOURCES, Resource
from simulator.stored_objects import Change, Collection, StoredObject

Json = dict[str, Any]


class Store:
    """The collections by path, and the newest version."""

    def __init__(self) -> None:
        self.version = 1
        self.compacted = 0
        self.collections = {path: Collection(each) for path, each in RESOURCES.items()}
        self.owners = OwnerIndex()
        self.on_change: list[Callable[[Change], None]] = []
        self._unreported: deque[Change] = deque()
        self._is_reporting = False

    def __repr__(self) -> str:
        return f"<Store version={self.version} compacted={self.compacted}>"

    def get(self, resource: Resource, key: str) -> StoredObject | None:
        """An object by its key."""
        return self.collections[resource.path].objects.get(key)

    def put(self, resource: Resource, key: str, found: Json) -> StoredObject:
        """Store an object at a new version."""
        self.version += 1
        metadata = found["metadata"] | {"resourceVersion": str(self.version)}
        stored = StoredObject(resource, found | {"metadata": metadata}, self.version)
        self._record(self.collections[resource.path].put(key, stored))
        return stored

    def remove(self, resource: Resource, key: str) -> StoredObject:
        """Remove an object; return its last state, with the version of the deletion."""
        self.version += 1
        change = self.collections[resource.path].remove(key, version=self.version)
        self._record(change)
        return change.object

    def compact(self, version: int) -> None:
        """Drop the changes up to ``version``."""
        self.compacted = version
        for collection in self.collections.values():
            collection.compact(version)

    def report(self) -> None:
        """Call the callbacks for all changes that they have not got, in order. A callback may
        change the store: its changes come after those before."""
        if self._is_reporting:
            return
        self._is_reporting = True
        try:
            while self._unreported:
                change = self._unreported.popleft()
                for call in (*self.on_change,):
                    call(change)
        finally:
            self._is_reporting = False

    def _record(self, change: Change) -> None:
        self.owners.record(change)
        self._unreported.append(change)
