"""The store of the simulated API server: objects by key, and the log of their changes, as in etcd.

A stored object is never changed, only replaced, so that caches, events and snapshots share it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from functools import cached_property
from operator import attrgetter
from typing import Any

import orjson

from simulator import protobuf_lists
from simulator.resources import Resource
from simulator.selectors import Matches

Json = dict[str, Any]


class StoredObject:
    """One version of an object. Its encoded forms are cached."""

    def __init__(self, resource: Resource, object_: Json, version: int) -> None:
        self.resource = resource
        self.object = object_
        self.version = version

    def __repr__(self) -> str:
        return f"<StoredObject {self.resource.kind} {self.name} version={self.version}>"

    @property
    def name(self) -> str:
        """The name of the object."""
        return str(self.object["metadata"]["name"])

    @property
    def uid(self) -> str:
        """The UID of the object."""
        return str(self.object["metadata"]["uid"])

    @cached_property
    def json(self) -> bytes:
        """The object in JSON, its kind first."""
        return orjson.dumps(self.object)

    @property
    def json_item(self) -> bytes:
        """The object as an item of a list: one of a built-in kind comes without its kind."""
        prefix = self.resource.type_prefix
        return self.json if self.resource.custom else b"{" + self.json[len(prefix) :]

    @property
    def metadata_item(self) -> bytes:
        """The object as an item of a list of metadata."""
        item = {
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": self.object["metadata"],
        }
        return orjson.dumps(item)

    @cached_property
    def protobuf(self) -> bytes:
        """The message of a pod or a node."""
        return protobuf_lists.encode(self.resource.kind, self.object)


class LogPosition:
    """A position in the log, before the change ``following``; at its end None until that comes."""

    __slots__ = ("following",)

    def __init__(self, following: Change | None = None) -> None:
        self.following = following


class Change(LogPosition):
    """A change of an object: an element of the log, and the position behind it.

    ``object`` is the new version; of a deletion the last one, with the version of the deletion.
    ``before`` is the version that was replaced. A watch follows ``following``, so the log may drop
    what a slow watch has still to deliver.
    """

    __slots__ = ("before", "key", "object", "type", "version")

    def __init__(
        self, type_: str, key: str, object_: StoredObject, before: StoredObject | None
    ) -> None:
        super().__init__()
        self.version = object_.version
        self.type = type_
        self.key = key
        self.object = object_
        self.before = before

    def __repr__(self) -> str:
        return f"<Change {self.type} {self.object!r}>"


class Collection:
    """The objects of a resource by key, and the log of their changes since the last compaction."""

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        self.objects: dict[str, StoredObject] = {}
        self._keys: list[str] = []
        self._log: list[Change] = []
        self._newest = LogPosition()

    def __repr__(self) -> str:
        return f"<Collection {self.resource.path} objects={len(self.objects)}>"

    def put(self, key: str, stored: StoredObject) -> Change:
        """Store a new object, or a new version of one."""
        before = self.objects.get(key)
        if before is None:
            insort(self._keys, key)
        self.objects[key] = stored
        return self._append(Change("ADDED" if before is None else "MODIFIED", key, stored, before))

    def remove(self, key: str, *, version: int) -> Change:
        """Remove an object; the change has its last state, with the version of the deletion."""
        before = self.objects.pop(key)
        del self._keys[bisect_left(self._keys, key)]
        metadata = before.object["metadata"] | {"resourceVersion": str(version)}
        last = StoredObject(self.resource, before.object | {"metadata": metadata}, version)
        return self._append(Change("DELETED", key, last, before))

    def page(
        self,
        namespace: str,
        *,
        version: int,
        after: str = "",
        limit: int = 0,
        matches: Matches | None = None,
    ) -> tuple[list[StoredObject], str]:
        """The objects as they were at ``version``, behind the key ``after``, at most ``limit``; and
        the last key of the page if others follow."""
        page: list[StoredObject] = []
        last = ""
        for key, stored in self._range(namespace, version=version, after=after):
            if matches is not None and not matches(stored.object):
                continue
            if limit and len(page) == limit:
                return page, last
            page.append(stored)
            last = key
        return page, ""

    def position(self, version: int) -> LogPosition:
        """The position behind the last change that is not newer than ``version``."""
        at = self._index_behind(version)
        return LogPosition(self._log[at]) if at < len(self._log) else self._newest

    def compact(self, version: int) -> None:
        """Drop the changes up to ``version`` from the log."""
        del self._log[: self._index_behind(version)]

    def _append(self, change: Change) -> Change:
        self._log.append(change)
        self._newest.following = change
        self._newest = change
        return change

    def _index_behind(self, version: int) -> int:
        return bisect_right(self._log, version, key=attrgetter("version"))

    def _range(
        self, namespace: str, *, version: int, after: str
    ) -> Iterator[tuple[str, StoredObject]]:
        """The objects of a namespace, or of all, as they were at ``version``, in order."""
        keys = self._keys
        # The versions that changes after ``version`` replaced; None where there was no object.
        replaced: dict[str, StoredObject | None] = {}
        for change in self._log[self._index_behind(version) :]:
            replaced.setdefault(change.key, change.before)
        if replaced:
            keys = sorted({*keys, *replaced})
        start, end = 0, len(keys)
        if namespace:
            # "0" is the character after "/".
            start, end = bisect_left(keys, f"{namespace}/"), bisect_left(keys, f"{namespace}0")
        for at in range(max(start, bisect_right(keys, after)), end):
            key = keys[at]
            stored = replaced[key] if key in replaced else self.objects[key]
            if stored is not None:
                yield key, stored
