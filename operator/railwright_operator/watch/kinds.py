"""Our own kinds: whole lists when it matters that none is missing, kopf's news in between.

A leader must not take its first turn from half a list: an attempt in the ledger whose job was not
read yet would look like one whose job was deleted. So it lists by itself first, and again every
``RESYNC_S``, which also drops what a lost event left behind. kopf loses such events by design: its
watch away for too long, it lists anew and says nothing of what went meanwhile, and a job deleted
then would keep its place in the line. So a list of kopf's calls for one of ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

from railwright_api import names
from railwright_operator.kube import errors, paths
from railwright_operator.kube.client import Api
from railwright_operator.slices import Slice
from railwright_operator.watch.jobs import Jobs
from railwright_operator.watch.site import Site

logger = logging.getLogger(__name__)

RESYNC_S = 60.0
RELISTED_S = 1.0
"""The pause before a list that kopf's own list called for: one for all that it brings."""

PAGE_OBJECTS = 250


class Kinds:
    """Jobs, queues and the fabric's levels, fed by lists and by kopf."""

    def __init__(
        self,
        api: Api,
        *,
        jobs: Jobs,
        site: Site,
        wake: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self._api = api
        self._jobs = jobs
        self._site = site
        self._wake = wake
        self._clock = clock
        self._relisted = asyncio.Event()

    def seen(self, plural: str, raw: dict[str, Any], event: str | None) -> None:
        """kopf brought a change; without a type it is from a list, made anew after an outage."""
        gone = event == "DELETED"
        if event is None:
            self._relisted.set()
        match plural:
            case names.TRAINING_JOBS if gone:
                self._jobs.discard(raw["metadata"]["uid"])
            case names.TRAINING_JOBS:
                self._jobs.absorb(raw)
            case names.QUEUES | names.FABRICS:
                self._site.seen(plural, raw, gone=gone)
        self._wake()

    async def sync(self) -> None:
        """Take in whole lists. Raises RequestFailed."""
        for plural in (names.QUEUES, names.FABRICS):
            raws, version = await self._list(plural)
            self._site.listed(plural, raws, version=version)
        listed, version = await self._list(names.TRAINING_JOBS)
        shared = Slice(self._clock)
        for raw in listed:
            if shared.over:
                await shared.others()
            self._jobs.absorb(raw)
        self._jobs.discard_unlisted({raw["metadata"]["uid"] for raw in listed}, version=version)
        self._wake()

    async def run(self) -> None:
        """Sync now and then, and whenever kopf listed anew, until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._relisted.wait(), RESYNC_S)
            await asyncio.sleep(RELISTED_S)
            self._relisted.clear()
            try:
                await self.sync()
            except errors.RequestFailed as error:
                self._relisted.set()
                logger.warning("lists not read", extra={"error": str(error)})

    async def _list(self, plural: str) -> tuple[list[dict[str, Any]], int]:
        query = {"limit": str(PAGE_OBJECTS)}
        items: list[dict[str, Any]] = []
        while True:
            page = await self._api.get(paths.kind(plural), query=query)
            items.extend(page["items"])
            following = page["metadata"].get("continue")
            if not following:
                return items, int(page["metadata"]["resourceVersion"])
            query = query | {"continue": following}
