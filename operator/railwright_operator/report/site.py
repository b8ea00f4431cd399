"""The statuses of what a site made: how full each queue is, what the fabric has."""

from __future__ import annotations

import asyncio
import collections
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from railwright_api import names
from railwright_operator.discovery import Discovery, FabricState
from railwright_operator.kube import bodies, errors, paths
from railwright_operator.kube.client import Api
from railwright_operator.report import fabric
from railwright_operator.watch.jobs import Jobs
from railwright_operator.watch.records import NodeRecord
from railwright_operator.watch.site import Site, SiteObject
from railwright_scheduler.attempt.phases import FINAL

logger = logging.getLogger(__name__)

INTERVAL_S = 5.0

Status = dict[str, Any]


class SiteReporter:
    """Writes these statuses when they change, now and then, apart from the jobs' own turn.
    ``unsurveyed`` says what keeps nodes from being measured."""

    def __init__(
        self,
        api: Api,
        *,
        site: Site,
        jobs: Jobs,
        discovery: Discovery,
        unsurveyed: Callable[[], Iterable[str]],
        absorb: Callable[[str, Mapping[str, Any]], None],
        nodes: Mapping[str, NodeRecord],
        clock: Callable[[], float],
    ) -> None:
        self._api = api
        self._site = site
        self._jobs = jobs
        self._discovery = discovery
        self._unsurveyed = unsurveyed
        self._absorb = absorb
        self._nodes = nodes
        self._clock = clock
        self._told_of: FabricState | None = None
        self._standing: Status = {}

    def __repr__(self) -> str:
        return f"<SiteReporter {self._site!r}>"

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            await self.report()

    async def report(self) -> None:
        """Write what changed. What goes wrong with one object is logged and leaves the others."""
        for name, status in self._queues().items():
            await self._one(names.QUEUES, self._site.queue(name), status)
        try:
            status = await self._fabric()
        except Exception as error:
            logger.exception("status not made", extra={"kind": names.FABRICS, "error": str(error)})
        else:
            await self._one(names.FABRICS, self._site.fabric, status)

    def _queues(self) -> dict[str, Status]:
        waiting: collections.Counter[str] = collections.Counter()
        running: collections.Counter[str] = collections.Counter()
        for known in self._jobs.all():
            if known.record.phase not in FINAL and not known.job.spec.suspend:
                (running if known.record.live else waiting)[known.job.spec.queue] += 1
        return {
            name: {"waiting": waiting[name], "running": running[name]} for name in self._site.queues
        }

    async def _fabric(self) -> Status:
        found = self._discovery.found
        if found is not self._told_of:
            self._standing = await asyncio.to_thread(fabric.standing, found)
            self._told_of = found
        agents = self._discovery.agents()
        problems = await fabric.problems(
            found, self._nodes, self._clock, agents=agents, unsurveyed=self._unsurveyed()
        )
        heard = fabric.heard(agents, is_caught_up=self._discovery.is_caught_up)
        return self._standing | heard | problems

    async def _one(self, plural: str, held: SiteObject | None, status: Status) -> None:
        if held is None:
            return
        try:
            written = await self._write(plural, held, status)
            if written is not None:
                self._absorb(plural, written)
        except errors.RequestFailed as error:
            logger.info("status not written", extra={"kind": plural, "error": str(error)})
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            logger.exception("status not made", extra={"kind": plural, "error": str(error)})

    async def _write(
        self, plural: str, held: SiteObject, status: Status
    ) -> Mapping[str, Any] | None:
        """The object after the write; None when nothing changed. Raises RequestFailed."""
        before = {key: held.status.get(key) for key in status}
        patch = bodies.merge_patch(before, status)
        if not patch:
            return None
        body = bodies.status_patch(patch, resource_version=str(held.rv))
        path = paths.status(paths.one(plural, held.name))
        written: Mapping[str, Any] = await self._api.patch(path, body)
        return written
