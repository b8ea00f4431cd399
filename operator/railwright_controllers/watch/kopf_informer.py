"""The informer of the Fabric: complete lists, and events from kopf in between.

The informer lists first, and again every ``RESYNC_S``, which also drops objects whose deletion was
lost. kopf loses deletions while its watch is interrupted: it lists again afterwards,
without events for deleted objects. So each list of kopf's causes a list here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import Any

from railwright_kube import errors, projections
from railwright_kube.backoff import Backoff
from railwright_kube.reflector import Reflector
from railwright_watch.cluster_objects import ClusterObject

logger = logging.getLogger(__name__)

RESYNC_S = 60.0
RELISTED_S = 1.0
"""The pause before a list that kopf caused: one list for all objects of kopf's list."""


class KopfInformer(Reflector[ClusterObject]):
    """An informer of cluster-scoped objects of the site with events from kopf."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._relisted = asyncio.Event()

    def seen(self, raw: Mapping[str, Any], event: str | None) -> None:
        """Take in a change from kopf. Without a type it is from a list, made after an interruption.

        A deletion moves the version on, so that no late answer revives the object. kopf keeps no
        order between objects: what the deletion overtook comes with the list that follows it.
        """
        self._received_s = self.clock()
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
        """List every ``RESYNC_S`` and after each list of kopf's, until cancelled."""
        self._begin()
        failures = 0
        while True:
            self._relisted.clear()
            try:
                await self._relist()
                failures = 0
            except errors.RequestFailed as error:
                failures += 1
                self._count_error(type(error).__name__)
                logger.warning("list not read", extra=self._context(error))
                await asyncio.sleep(Backoff(RELISTED_S, RESYNC_S).delay_s(failures, self.rng))
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RESYNC_S):
                    await self._relisted.wait()
            await asyncio.sleep(RELISTED_S)
