"""List all objects of a kind in pages of bounded size.

A page that is too large, or has an object that is nested too deeply to be decoded, is requested
again with half as many objects. A single object that is too large is left out: it is logged and
counted, and the list goes on after it. One that is nested too deeply is cut.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from railwright_kube import body_limits, errors, projections
from railwright_kube.client import Api
from railwright_kube.metrics import WatchMetrics
from railwright_kube.projections import Page, Projection

logger = logging.getLogger(__name__)

OBJECTS_MAX = 500
OBJECTS_FIRST = 16
"""Pages grow while their objects are small: an API server needs longer than the deadline for 500
jobs of 256 KiB."""
DEADLINE_S = 30.0


@dataclass(slots=True)
class Listing:
    """A partial list: its version, and the UIDs of its objects so far."""

    version: int = 0
    uids: set[str] = field(default_factory=set)


@dataclass(eq=False, repr=False)
class Pager:
    """Lists the objects of one kind under one path, and adapts the size of pages."""

    api: Api
    path: str
    projection: Projection[Any]
    _: KW_ONLY
    metrics: WatchMetrics
    query: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._objects = OBJECTS_FIRST

    async def pages(self) -> AsyncGenerator[Page, None]:
        """List all objects; the next page is requested while one is taken in.

        Raises RequestFailed.
        """
        ahead = asyncio.create_task(self._page(""))
        try:
            while True:
                page = await ahead
                if not page.following:
                    yield page
                    return
                ahead = asyncio.create_task(self._page(page.following))
                yield page
        finally:
            ahead.cancel()
            await asyncio.gather(ahead, return_exceptions=True)

    async def _page(self, following: str) -> Page:
        """The page from this position on, with as many objects as fit."""
        while True:
            try:
                return await self._ask(following, accept=self.projection.accept, decode=self._sized)
            except errors.AnswerTooLarge as error:
                fields = {
                    "kind": self.projection.kind,
                    "objects": self._objects,
                    "error": str(error),
                }
                if self._objects == 1:
                    return await self._without_object(following, fields)
                self._objects //= 2
                logger.info("page too large, requesting half of it", extra=fields)
            except errors.Unreachable:
                # The page may be too large for the deadline: the next list requests a smaller one.
                self._objects = max(1, self._objects // 2)
                raise

    def _sized(self, body: bytes) -> Page:
        """Request a page; double the size of the next one if that fits."""
        try:
            page = self.projection.page(body)
        except RecursionError as error:
            if self._objects > 1:
                raise errors.AnswerTooLarge("an object is nested too deeply") from error
            page = self.projection.page(body_limits.shallow(body))
        if len(body) <= body_limits.BODY_BYTES_MAX // 4:
            self._objects = min(OBJECTS_MAX, 2 * self._objects)
        return page

    async def _without_object(self, following: str, fields: Mapping[str, object]) -> Page:
        """The page of one object that is too large: its metadata, and the position of the next
        page."""
        page = await self._ask(
            following, accept=projections.METADATA_ONLY, decode=projections.metadata_page
        )
        self.metrics.errors.labels(self.projection.kind, "too large").inc()
        self._objects = 2
        logger.error("object too large to read", extra={**fields, "object": page.unread})
        return page

    async def _ask(self, following: str, *, accept: str, decode: Callable[[bytes], Page]) -> Page:
        query = {**self.query, "limit": str(self._objects)}
        if following:
            query["continue"] = following
        page: Page = await self.api.get(
            self.path, query=query, deadline_s=DEADLINE_S, accept=accept, decode=decode
        )
        return page
