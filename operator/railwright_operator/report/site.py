"""Publish the statuses of the queues and of the fabric."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

from railwright_api import names, routes
from railwright_kube import bodies, errors, paths
from railwright_kube.client import Api
from railwright_operator.discovery import Discovery, FabricState
from railwright_operator.report import fabric
from railwright_operator.report.fabric import FabricSummary
from railwright_operator.watch.jobs import Jobs
from railwright_operator.watch.records import NodeRecord
from railwright_operator.watch.site import Site, SiteObject
from railwright_scheduler.attempt.phases import FINAL

logger = logging.getLogger(__name__)

INTERVAL_S = 5.0
"""A changed fabric is published at once, everything else at this interval."""
PAUSE_S = 0.5
"""The shortest pause between two reports, so that a burst of changes is one write."""

Status = dict[str, Any]


@dataclass(eq=False)
class SiteReporter:
    """Writes these statuses when they change, in a task of its own. ``unsurveyed`` returns what
    prevents surveys."""

    api: Api
    _: KW_ONLY
    site: Site
    jobs: Jobs
    discovery: Discovery
    unsurveyed: Callable[[], Iterable[str]]
    absorb: Callable[[str, Mapping[str, Any]], None]
    nodes: Mapping[str, NodeRecord]
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        self._summarized: FabricState | None = None
        self._summary = FabricSummary()

    def __repr__(self) -> str:
        return f"<SiteReporter {self.site!r}>"

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            await asyncio.sleep(PAUSE_S)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.discovery.refreshed.wait(), INTERVAL_S - PAUSE_S)
            self.discovery.refreshed.clear()
            await self.report()

    async def report(self) -> None:
        """Write the changed statuses, the Fabric first, as decisions depend on it. A failure of one
        object is logged, not raised."""
        try:
            status = await self._fabric()
        except Exception as error:
            extra = {"kind": names.FABRICS, "error": str(error)}
            logger.exception("status rendering failed", extra=extra)
        else:
            await self._write(names.FABRICS, self.site.fabric, status)
        for name, status in self._queues().items():
            await self._write(names.QUEUES, self.site.queue(name), status)

    def _queues(self) -> dict[str, Status]:
        waiting: collections.Counter[str] = collections.Counter()
        running: collections.Counter[str] = collections.Counter()
        for cached in self.jobs.all():
            if cached.record.phase not in FINAL and not cached.job.spec.suspend:
                (running if cached.record.live else waiting)[cached.job.spec.queue] += 1
        return {
            name: {"waiting": waiting[name], "running": running[name]} for name in self.site.queues
        }

    async def _fabric(self) -> Status:
        found, is_assembled = self.discovery.found, self.discovery.is_assembled
        if not is_assembled and not found.problem:
            return {}
        if is_assembled and found is not self._summarized:
            self._summary = await asyncio.to_thread(fabric.summarize, found)
            self._summarized = found
        agents = self.discovery.agents()
        problems = await fabric.problems(
            found,
            self.nodes,
            self.clock,
            agents=agents,
            unsurveyed=self.unsurveyed(),
            unpublished=(*self._summary.problems, *filter(None, [self.discovery.delay])),
        )
        agents_status = fabric.agents_status(agents, is_caught_up=self.discovery.is_caught_up)
        return self._summary.status | self._topology(found) | agents_status | problems

    def _topology(self, found: FabricState) -> Status:
        """The topology for scheduling. A new leader keeps that of the last one until it has
        assembled its own; if cables are among the sources, until agents have reported, as these
        determine which adapters are front-end."""
        if not self.discovery.is_assembled:
            return {}
        held = self.site.fabric
        is_kept = held is not None and "topology" in held.status
        if is_kept and found.fabric.networks and not self.discovery.is_caught_up:
            return {}
        if self._summary.topology is None:
            return {}
        return {"topology": self._summary.topology}

    async def _write(self, plural: str, held: SiteObject | None, status: Status) -> None:
        """Write a status if it differs from the one held. Logs failures."""
        if held is None:
            return
        try:
            before = {key: held.status.get(key) for key in status}
            if patch := bodies.merge_patch(before, status):
                body = bodies.status_patch(patch, resource_version=str(held.rv))
                path = paths.status(routes.one(plural, held.name))
                self.absorb(plural, await self.api.patch(path, body))
        except errors.RequestFailed as error:
            extra = {"kind": plural, "error": str(error)}
            logger.info("status update failed", extra=extra)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            logger.exception("status rendering failed", extra={"kind": plural, "error": str(error)})
