"""The interconnect as the Fabric object has it: all that decisions use of the network's topology.

The controllers write it. So a new leader decides by the topology that the last one used.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from railwright_api import names
from railwright_conversion import interconnects
from railwright_topology.interconnect import Interconnect
from railwright_watch.cluster_objects import ClusterObject

logger = logging.getLogger(__name__)


class InterconnectCache:
    """The last interconnect of the Fabric that could be read. It stays if the Fabric is deleted."""

    def __init__(self) -> None:
        self.interconnect = Interconnect()
        self._first = asyncio.Event()

    def fabric_changed(self, old: ClusterObject | None, new: ClusterObject | None) -> None:
        """Take in a change of a Fabric; None means absent."""
        if new is None or not self.is_news(old, new):
            return
        try:
            self.interconnect = interconnects.parse(new.status["topology"])
        except ValueError as error:
            logger.exception("topology of fabric not read", extra={"error": str(error)})
        self._first.set()

    def is_news(self, old: ClusterObject | None, new: ClusterObject | None) -> bool:
        """Whether the Fabric now has another topology than before."""
        if new is None or new.name != names.SINGLETON:
            return False
        before = None if old is None else old.status.get("topology")
        return new.status.get("topology") not in (None, before)

    @property
    def is_known(self) -> bool:
        """Whether the Fabric has had a topology."""
        return self._first.is_set()

    async def wait_first(self, timeout_s: float) -> None:
        """Wait until the Fabric has a topology, at most this long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._first.wait()
