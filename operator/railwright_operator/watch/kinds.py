"""Queues and fabrics: whole lists when it matters that none is missing, kopf's news in between.

A leader must not take its first turn from half a list: a job whose queue was not read yet would
wait for it. So it lists by itself first, and again every ``RESYNC_S``, which also drops what a lost
event left behind. kopf loses such events by design: its watch away for too long, it lists anew and
says nothing of what went meanwhile. So a list of kopf's calls for one of ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

import msgspec

from railwright_api import names
from railwright_operator.kube import errors, paths
from railwright_operator.kube.client import Api
from railwright_operator.metrics import WatchMetrics
from railwright_operator.watch.pages import Pager
from railwright_operator.watch.site import Site

logger = logging.getLogger(__name__)

RESYNC_S = 60.0
RELISTED_S = 1.0
"""The pause before a list that kopf's own list called for: one for all that it brings."""


class Kinds:
    """Queues and the fabric's levels, fed by lists and by kopf."""

    def __init__(
        self, api: Api, *, site: Site, metrics: WatchMetrics, wake: Callable[[], None]
    ) -> None:
        self._site = site
        self._wake = wake
        self._relisted = asyncio.Event()
        self._pagers = {
            plural: Pager(api, paths.kind(plural), kind=plural, metrics=metrics)
            for plural in (names.QUEUES, names.FABRICS)
        }

    def seen(self, plural: str, raw: dict[str, Any], event: str | None) -> None:
        """kopf brought a change; without a type it is from a list, made anew after an outage."""
        gone = event == "DELETED"
        if event is None:
            self._relisted.set()
        self._site.seen(plural, raw, gone=gone)
        self._wake()

    async def sync(self) -> None:
        """Take in whole lists. Raises RequestFailed."""
        for plural, pager in self._pagers.items():
            raws: list[dict[str, Any]] = []
            version = 0
            async with contextlib.aclosing(pager.pages()) as pages:
                async for page in pages:
                    raws += map(msgspec.json.decode, page.items)
                    version = page.version
            self._site.listed(plural, raws, version=version)
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
