"""Watches of the simulated API server: a cursor in the log of a collection."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

import orjson

from simulator.resources import Resource
from simulator.selectors import Matches
from simulator.statuses import StatusError
from simulator.stored_objects import Change, LogPosition, StoredObject


class WatchCursor:
    """The events of a watch that its client has not received yet, one JSON object a line.

    ``ended`` is true after an event of type ERROR: the server closes the stream then. An object
    that starts to match the selector is ADDED, one that ceases to is DELETED.
    """

    def __init__(
        self,
        resource: Resource,
        position: LogPosition,
        *,
        version: int,
        namespace: str,
        matches: Matches | None,
        newest: Callable[[], int],
        initial: Iterable[StoredObject] = (),
    ) -> None:
        self.ended = False
        self._resource = resource
        self._position = position
        self._version = version
        self._namespace = namespace
        self._matches = matches
        self._newest = newest
        self._initial = deque(_line("ADDED", found.json) for found in initial)

    def __repr__(self) -> str:
        return f"<WatchCursor {self._resource.path} version={self._version}>"

    @property
    def version(self) -> int:
        """The version of the last event that was taken."""
        return self._version

    def take(self, most: int) -> list[bytes]:
        """The next events, in order, at most so many."""
        lines: list[bytes] = []
        while self._initial and len(lines) < most:
            lines.append(self._initial.popleft())
        while len(lines) < most and (change := self._position.following) is not None:
            self._position, self._version = change, change.version
            line = self._event(change)
            if line:
                lines.append(line)
        return lines

    def skip(self, count: int) -> None:
        """Lose the next events: a fault."""
        self.take(count)

    def bookmark(self) -> bytes:
        """A bookmark: the newest version, or that of the last event if others are pending."""
        version = self._version if self._position.following is not None else self._newest()
        found = {
            "kind": self._resource.kind,
            "apiVersion": self._resource.api_version,
            "metadata": {"resourceVersion": str(version), "creationTimestamp": None},
        }
        return _line("BOOKMARK", orjson.dumps(found))

    def _event(self, change: Change) -> bytes:
        """The event of a change; empty if it is none to this watch."""
        found = change.object
        if self._namespace and found.object["metadata"]["namespace"] != self._namespace:
            return b""
        if self._matches is None:
            return _line(change.type, found.json)
        was = change.before is not None and self._matches(change.before.object)
        is_now = change.type != "DELETED" and self._matches(found.object)
        if is_now:
            return _line("MODIFIED" if was else "ADDED", found.json)
        return _line("DELETED", _last_match(change).json) if was else b""


class ExpiredWatch(WatchCursor):
    """A watch from a version that was compacted: one event of type ERROR."""

    def __init__(self, resource: Resource, error: StatusError) -> None:
        super().__init__(
            resource, LogPosition(), version=0, namespace="", matches=None, newest=lambda: 0
        )
        self._initial.append(_line("ERROR", error.body()))

    def skip(self, count: int) -> None:
        """The server closes the stream after the event, so its loss would be noticed."""

    def take(self, most: int) -> list[bytes]:
        """The ERROR event, once."""
        self.ended = True
        return super().take(most)


def _last_match(change: Change) -> StoredObject:
    """The object of a DELETED event: its last state that the selector matched."""
    if change.type == "DELETED" or change.before is None:
        return change.object
    before = change.before
    metadata = before.object["metadata"] | {"resourceVersion": str(change.version)}
    return StoredObject(before.resource, before.object | {"metadata": metadata}, change.version)


def _line(type_: str, encoded: bytes) -> bytes:
    return b'{"type":"%s","object":%s}' % (type_.encode(), encoded)
