"""The stored objects of one kind, their history, and a watcher's cache that lags.

A cache follows the rules of the operator's reflector, which determine the input of a plan: a list
is a snapshot from after its request, taken in page by page; a stream delivers every event in order,
or breaks; responses to our own writes are taken in ahead of the stream, the newer version of an
object wins, and an object that is missing at a version that the stream has passed was deleted.
Beyond the guarantees of an API server, ``miss`` loses events silently: only the next list has their
changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Revision:
    """The store's one counter: every change of anything has a number of its own."""

    def __init__(self) -> None:
        self.newest = 0

    def following(self) -> int:
        """The number of the change that is made now."""
        self.newest += 1
        return self.newest


@dataclass(frozen=True, slots=True)
class Stored(Generic[V]):
    """An object and the revision of its last change."""

    version: int
    value: V


class Table(Generic[K, V]):
    """The objects of one kind, and the log of what happened to them; a removal has no value."""

    def __init__(self, revision: Revision) -> None:
        self.objects: dict[K, V] = {}
        self.log: list[tuple[int, K, V | None]] = []
        self.versions: dict[K, int] = {}
        self.revision = revision

    def get(self, key: K) -> Stored[V] | None:
        """What a request for this one object is answered."""
        value = self.objects.get(key)
        return None if value is None else Stored(self.versions[key], value)

    def put(self, key: K, value: V) -> None:
        """Create or replace."""
        version = self.revision.following()
        self.objects[key] = value
        self.versions[key] = version
        self.log.append((version, key, value))

    def remove(self, key: K) -> None:
        """Remove what is there."""
        del self.objects[key], self.versions[key]
        self.log.append((self.revision.following(), key, None))


@dataclass(slots=True)
class _List(Generic[K, V]):
    """A list being read: what is still to come of it, all that it has, and as of when."""

    left: list[tuple[K, Stored[V]]]
    keys: dict[K, bool]
    version: int
    position: int


class Copy(Generic[K, V]):
    """What a watcher holds of a table. ``changes`` counts what was new to it."""

    def __init__(
        self, table: Table[K, V], *, behind: int = 0, lasting: Callable[[V, V], V] | None = None
    ) -> None:
        """Begin with a list as of so many events ago. ``lasting(held, news)`` gives the news with
        what no older version may undo."""
        self.table = table
        self._held: dict[K, Stored[V]] = {}
        self._gone: dict[K, bool] = {}
        self._lasting = lasting
        self._position = max(0, len(table.log) - behind)
        self._version: int | None = 0
        self._list: _List[K, V] | None = None
        self.changes = 0
        for version, key, value in table.log[: self._position]:
            self._apply(version, key, value)

    @property
    def objects(self) -> dict[K, V]:
        """The objects held, the one known longest first."""
        return {key: stored.value for key, stored in self._held.items()}

    def stored(self) -> dict[K, Stored[V]]:
        """The objects held, with their versions."""
        return dict(self._held)

    def get(self, key: K) -> Stored[V] | None:
        """One object, as held."""
        return self._held.get(key)

    def cut(self) -> None:
        """The stream cannot be resumed (410): a new list follows."""
        self._version = self._list = None

    def relist(self) -> None:
        """Request the list anew, and read all of it."""
        self.cut()
        while self._version is None:
            self._read(len(self.table.objects) + 1)

    def catch_up(self, events: int) -> None:
        """Take in up to so many of the events not seen, or of the objects of a list."""
        if self._version is None:
            self._read(events)
            return
        for version, key, value in self.table.log[self._position : self._position + events]:
            self._apply(version, key, value)
            self._position += 1

    def miss(self, events: int) -> None:
        """So many events are lost silently."""
        if self._version is not None:
            self._position = min(self._position + events, len(self.table.log))

    def absorb(self, key: K, stored: Stored[V]) -> None:
        """Fold in the answer to a request, unless the stream is past it."""
        held = self._held.get(key)
        if held is None and self._version is not None and stored.version <= self._version:
            return
        if held is None or stored.version >= held.version:
            self._put(key, stored)

    def discard(self, key: K) -> None:
        """A request found that it is gone, and gone it stays."""
        self._gone[key] = True
        if self._held.pop(key, None) is not None:
            self.changes += 1

    def _read(self, count: int) -> None:
        if self._list is None:
            table = self.table
            everything = [
                (key, Stored(table.versions[key], table.objects[key])) for key in table.objects
            ]
            self._list = _List(
                left=everything,
                keys=dict.fromkeys(table.objects, True),
                version=table.revision.newest,
                position=len(table.log),
            )
        reading = self._list
        for key, stored in reading.left[:count]:
            self._take(key, stored)
        del reading.left[:count]
        if reading.left:
            return
        for key in [key for key in self._held if key not in reading.keys]:
            if self._held[key].version <= reading.version:
                del self._held[key]
                self.changes += 1
        self._version, self._position, self._list = reading.version, reading.position, None

    def _apply(self, version: int, key: K, value: V | None) -> None:
        held = self._held.get(key)
        if value is not None:
            self._take(key, Stored(version, value))
        elif held is not None and version >= held.version:
            del self._held[key]
            self.changes += 1
        assert self._version is not None, "events come only after a list"
        self._version = max(self._version, version)

    def _take(self, key: K, stored: Stored[V]) -> None:
        held = self._held.get(key)
        if held is None:
            if self._version is not None and stored.version <= self._version:
                return
        elif stored.version <= held.version:
            return
        elif self._lasting is not None:
            stored = Stored(stored.version, self._lasting(held.value, stored.value))
        self._put(key, stored)

    def _put(self, key: K, stored: Stored[V]) -> None:
        if key not in self._gone:
            self._held[key] = stored
            self.changes += 1
