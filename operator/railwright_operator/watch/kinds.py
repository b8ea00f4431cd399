"""Queues and the Fabric: whole lists when it matters that none is missing, kopf's news in between.

A leader must not take its first turn from half a list: a job whose queue was not read yet would
wait for it. So it lists by itself first, and again every ``RESYNC_S``, which also drops what a lost
event left behind. kopf loses such events by design: its watch away for too long, it lists anew and
says nothing of what went meanwhile. So a list of kopf's calls for one of ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import Any

from railwright_operator.kube import errors
from railwright_operator.watch import projections
from railwright_operator.watch.reflector import Reflector
from railwright_operator.watch.site import ClusterObject, SiteObject

logger = logging.getLogger(__name__)

RESYNC_S = 60.0
RELISTED_S = 1.0
"""The pause before a list that news of kopf's called for: one for all that it brings."""


class KopfInformer(Reflector[SiteObject]):
    """An informer of one kind whose events kopf brings."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._relisted = asyncio.Event()

    def seen(self, raw: Mapping[str, Any], event: str | None) -> None:
        """kopf brought a change; without a type it is from a list, made anew after an outage.

        A deletion moves the version on, so that no late answer revives the object. kopf keeps no
        order between objects: what the deletion overtook comes with the list that follows it.
        """
        self._received_s = self._clock()
        found = projections.converted(raw, ClusterObject)
        if event == "DELETED":
            version = self._drop(found.metadata)
            if self._version is not None:
                self._version = max(self._version, version)
        else:
            self._take(found)
        if event in (None, "DELETED"):
            self._relisted.set()

    async def run(self) -> None:
        """List now and then, and whenever kopf listed anew, until cancelled."""
        while True:
            self._relisted.clear()
            try:
                await self._relist()
            except errors.RequestFailed as error:
                self._relisted.set()
                self._count_error(type(error).__name__)
                logger.warning("list not read", extra=self._context(error))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._relisted.wait(), RESYNC_S)
            await asyncio.sleep(RELISTED_S)
