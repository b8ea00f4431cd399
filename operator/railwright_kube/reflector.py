"""The informer of one kind: list in pages, watch, resume, and recover from every failure.

A cache can fall behind unnoticed. So a stream without an event for ``stall_s``, bookmarks included,
is closed and resumed, and ``receive_age_s`` is the time since the last event. A cache can also mix
versions, as it takes in the responses to our own writes (``absorb``). So every object carries its
resourceVersion and the newer one wins. An object that is missing at a version that the stream has
passed was deleted.

A stream delivers every event. In case one is lost nevertheless, the stream is followed by a new
list after ``RESYNC_S``. If that list fails, the stream is resumed and the list tried again later.

Lists are read without a resourceVersion, that is, from the quorum. A list older than the stream
means that the store was restored from a backup. Then all state in memory is void, and the process
must end: no code may catch ``StoreWentBackError``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from random import Random
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeVar

from railwright_kube import errors, projections
from railwright_kube.backoff import Backoff
from railwright_kube.client import Api
from railwright_kube.metrics import EVENTS, WatchLag, WatchMetrics
from railwright_kube.pages import Listing, Pager
from railwright_kube.projections import ApiObject, Event, Identity, Projection, Undeclared
from railwright_kube.yielding import TimeSlice

logger = logging.getLogger(__name__)

STALL_S = 75.0
WATCH_S = 300
RESYNC_S = 1800.0
RESYNC_BACKOFF_S = Backoff(60.0, 600.0)
BACKOFF_S = Backoff(0.2, 5.0)
BACKOFF_CLOSED_S = Backoff(0.2, 1.0)
HEALTHY_S = 5.0
"""A watch that lasted this long, or applied an event, does not count as failed.
The list before it is no part of that time."""


class Record(Protocol):
    """The interface of a record. Its equality should ignore ``rv``."""

    @property
    def uid(self) -> str: ...
    @property
    def rv(self) -> int: ...


R = TypeVar("R", bound=Record)


class StoreWentBackError(Exception):
    """The store is older than before: the process must end and start again."""


class _RelistError(Exception):
    """An ERROR event: the stream cannot be resumed from its position."""

    def __init__(self, message: str, *, cause: str) -> None:
        super().__init__(message)
        self.cause = cause


@dataclass(eq=False, repr=False)
class Reflector(Generic[R]):
    """A cache of the objects under ``path``, by UID.

    ``parse`` converts the decoded object to a record, or returns None to hold none. An object that
    cannot be read is logged and counted, and its old record stays. ``on_change(old, new)`` is
    called for every change, with None for absent; it must not block or raise. ``lasting(held,
    news)`` returns the new record with the fields that no older version may undo: the response to
    a write may lack its version, and an event from before that write may arrive after it.
    """

    api: Api
    path: str
    _: KW_ONLY
    projection: Projection[Any]
    parse: Callable[[Any], R | None]
    on_change: Callable[[R | None, R | None], None]
    metrics: WatchMetrics
    clock: Callable[[], float]
    rng: Random
    query: Mapping[str, str] = field(default_factory=dict)
    lasting: Callable[[R, R], R] = lambda held, news: news
    stall_s: float = STALL_S
    watch_s: int = WATCH_S

    def __post_init__(self) -> None:
        self._pager = Pager(
            self.api, self.path, self.projection, metrics=self.metrics, query=self.query
        )
        self._records: dict[str, R] = {}
        self._view = MappingProxyType(self._records)
        self._version: int | None = None
        self._newest = 0
        self.lag = WatchLag(self.metrics, self.kind, self.clock)
        self._received_s = self.clock()
        self._resync_s = 0.0
        self._failed_resyncs = 0
        self._first_list = asyncio.Event()
        self.relists = self.events = self.errors = 0

    def __repr__(self) -> str:
        return (
            f"<Reflector {self.kind} records={len(self._records)} version={self._version}"
            f" relists={self.relists} errors={self.errors}>"
        )

    @property
    def kind(self) -> str:
        """The kind of the objects."""
        return self.projection.kind

    @property
    def records(self) -> Mapping[str, R]:
        """The records by UID, updated in place: read them between two awaits, or copy."""
        return self._view

    @property
    def synced(self) -> bool:
        """Whether a complete list has been taken in."""
        return self._first_list.is_set()

    async def wait_synced(self) -> None:
        """Return once ``synced``."""
        await self._first_list.wait()

    def receive_age_s(self) -> float:
        """Seconds since the last list or event of the API server, bookmarks included."""
        return self.clock() - self._received_s

    def absorb(self, record: R) -> None:
        """Take in the response to a write, unless the stream has already passed its version.

        A write whose response has no new version (a binding) comes with the held version.
        """
        self.lag.expect(record.rv)
        held = self._records.get(record.uid)
        if held is None and self._version is not None and record.rv <= self._version:
            return
        if held is None or record.rv >= held.rv:
            self._put(held, record if held is None else self.lasting(held, record))

    async def run(self) -> None:
        """List and watch until cancelled. Raises StoreWentBackError."""
        self._begin()
        failures = 0
        while True:
            started_s, applied = math.inf, self.events
            cause = ""
            try:
                await self._list_if_due()
                started_s = self.clock()
                await self._follow()
            except StoreWentBackError:
                raise
            except _RelistError as error:
                self._version = None
                cause = error.cause
                logger.info("watch expired, listing again", extra=self._context(error))
            except errors.RequestFailed as error:
                cause = type(error).__name__
                if not errors.is_resumable(error):
                    self._version = None
                logger.warning("watch failed", extra=self._context(error))
            except Exception as error:
                cause = "unexpected"
                self._version = None
                logger.exception("watch failed", extra=self._context(error))
            if self.events > applied or self.clock() - started_s >= HEALTHY_S:
                failures = 0
            await self._pause(cause, failures)
            failures += 1

    def _begin(self) -> None:
        """Publish the series. A process that does not lead constructs watches that never run."""
        self.metrics.begin(self.kind)
        self.metrics.records.labels(self.kind).set_function(lambda: len(self._records))
        self.metrics.receive_age_s.labels(self.kind).set_function(self.receive_age_s)

    async def _pause(self, cause: str, failures: int) -> None:
        """Count the end of a watch and wait. A stream that the server closes is no error."""
        if cause:
            self._count_error(cause)
        backoff = BACKOFF_S if cause else BACKOFF_CLOSED_S
        await asyncio.sleep(backoff.delay_s(failures, self.rng))

    async def _list_if_due(self) -> None:
        """List if there is no version to watch from, or if a resync is due. A resync that fails
        leaves the version of the watch as it was."""
        version = self._version
        if version is not None and self.clock() < self._resync_s:
            return
        try:
            await self._relist()
        except errors.RequestFailed as error:
            if version is None:
                raise
            self._version = version
            self._count_error(type(error).__name__)
            logger.warning("resync failed", extra=self._context(error))
            delay_s = RESYNC_BACKOFF_S.delay_s(self._failed_resyncs, self.rng)
            self._resync_s = self.clock() + delay_s
            self._failed_resyncs += 1

    async def _relist(self) -> None:
        """Take in a complete list, the first page by page. Later what it lacks is dropped before
        anything is added: nobody sees a pod that is gone beside the one in its place."""
        self._version = None
        self.relists += 1
        self.metrics.relists.labels(self.kind).inc()
        started_s = self.clock()
        self._resync_s = started_s + RESYNC_S
        if self.relists == 1:
            # A standby constructs it long before it runs.
            self._received_s = started_s
        listing, news = Listing(), list[R]()
        async with contextlib.aclosing(self._list(listing)) as objects:
            async for found in objects:
                self._received_s = self.clock()
                self._check_store(listing.version, found.metadata)
                if not self.synced:
                    self._take(found)
                elif (record := self._news(found)) is not None:
                    news.append(record)
        self._check_store(listing.version)
        for held in self._missing_from(listing):
            self._put(held, None)
        await self._put_all(news)
        self._version = self._newest = listing.version
        self.lag.reached(listing.version)
        self._received_s = self.clock()
        self._failed_resyncs = 0
        took_s = self._received_s - started_s
        self._first_list.set()
        logger.info(
            "listed",
            extra={"kind": self.kind, "objects": len(listing.uids), "seconds": round(took_s, 2)},
        )

    async def _list(self, listing: Listing) -> AsyncGenerator[ApiObject, None]:
        """The objects of a list, recorded in ``listing``, with pauses for other tasks."""
        time_slice = TimeSlice(self.clock)
        async with contextlib.aclosing(self._pager.pages()) as pages:
            async for page in pages:
                listing.version = page.version
                listing.uids.update(page.unread)
                # The next page is requested before this one is taken in.
                await time_slice.yield_to_others()
                for item in page.items:
                    if time_slice.is_over:
                        await time_slice.yield_to_others()
                    found = self.projection.listed(item)
                    listing.uids.add(found.metadata.uid)
                    yield found

    def _missing_from(self, listing: Listing) -> list[R]:
        """The records that the list should have if they still existed."""
        return [
            held
            for uid, held in self._records.items()
            if uid not in listing.uids and held.rv <= listing.version
        ]

    def _check_store(self, version: int, metadata: Identity | None = None) -> None:
        """Raise StoreWentBackError if a list, or an object in it, is older than before.

        A restore can also raise the store's version, for watches to end (`etcdutl snapshot restore
        --bump-revision`): then only the objects show that they are of the past.
        """
        evidence = ""
        if version < self._newest:
            evidence = f"from {self._newest} to {version}"
        elif metadata is not None and metadata.uid in self._records:
            held = self._records[metadata.uid]
            if int(metadata.resource_version) < held.rv <= version:
                evidence = f"{metadata.name} from {held.rv} to {metadata.resource_version}"
        if evidence:
            self._count_error("rewound")
            raise StoreWentBackError(f"{self.kind}: {evidence}")

    async def _follow(self) -> None:
        """Apply a stream's events until it ends."""
        query = {
            **self.query,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": str(self._version),
            "timeoutSeconds": str(self.watch_s + self.rng.randrange(self.watch_s)),
        }
        stream = self.api.stream(self.path, query=query, stall_s=self.stall_s)
        async with contextlib.aclosing(stream) as lines:
            async for line in lines:
                self._received_s = self.clock()
                self._apply(projections.event(line))
        # The server ended the stream: it has nothing else to say.
        self._received_s = self.clock()

    def _apply(self, event: Event) -> None:
        kind = event.type
        label = kind if kind in EVENTS else "OTHER"
        self.metrics.events.labels(self.kind, label).inc()
        match kind:
            case "ERROR":
                failure = projections.failure(event.object)
                cause = "gone" if failure.code == 410 else "error event"
                raise _RelistError(f"{failure.code} {failure.message}", cause=cause)
            case "ADDED" | "MODIFIED":
                version = self._take(self.projection.streamed(event.object))
            case "DELETED":
                version = self._drop(self.projection.streamed(event.object).metadata)
            case _:
                version = int(projections.versioned(event.object).metadata.version)
        assert self._version is not None, "events come only after a list"
        self._version = max(self._version, version)
        self.lag.reached(self._version)
        self._newest = max(self._newest, version)
        self.events += 1

    def _drop(self, metadata: Identity) -> int:
        """Remove a deleted object; return the version of the deletion."""
        held, version = self._records.get(metadata.uid), int(metadata.resource_version)
        if held is not None and version >= held.rv:
            self._put(held, None)
        return version

    def _take(self, found: ApiObject) -> int:
        """Store this object's record if it is newer; return its version."""
        record = self._news(found)
        if record is not None:
            self._put(self._records.get(record.uid), record)
        return int(found.metadata.resource_version)

    def _news(self, found: ApiObject) -> R | None:
        """The record of an object that is newer than the one held, if it is to be held."""
        held = self._records.get(found.metadata.uid)
        newest = held.rv if held is not None else self._version
        is_news = newest is None or int(found.metadata.resource_version) > newest
        return self._record(found) if is_news else None

    async def _put_all(self, news: Iterable[R]) -> None:
        """Store these records, with pauses for other tasks. Responses to writes may be newer."""
        time_slice = TimeSlice(self.clock)
        for record in news:
            if time_slice.is_over:
                await time_slice.yield_to_others()
            held = self._records.get(record.uid)
            if held is None or record.rv > held.rv:
                self._put(held, record if held is None else self.lasting(held, record))

    def _record(self, found: ApiObject) -> R | None:
        """The record of an object; None if none is to be held, or, with a log line, if it is
        invalid."""
        if isinstance(found, Undeclared):
            logger.error("object not readable", extra=self._unreadable(found, found.why))
            return None
        held = self._records.get(found.metadata.uid)
        try:
            record = self.parse(found)
            return record if record is None or held is None else self.lasting(held, record)
        except Exception as error:
            logger.exception("object not readable", extra=self._unreadable(found, error))
            return None

    def _unreadable(self, found: ApiObject, why: object) -> dict[str, Any]:
        """Count a failure; return the fields of its log line."""
        self._count_error("unreadable")
        return self._context(why) | {"object": found.metadata.name}

    def _put(self, old: R | None, new: R | None) -> None:
        if new is not None:
            self._records[new.uid] = new
        else:
            assert old is not None, "a change from nothing to nothing"
            del self._records[old.uid]
        if old != new:
            self.on_change(old, new)

    def _count_error(self, cause: str) -> None:
        self.errors += 1
        self.metrics.errors.labels(self.kind, cause).inc()

    def _context(self, error: object) -> dict[str, Any]:
        return {"kind": self.kind, "version": self._version, "error": str(error)}
