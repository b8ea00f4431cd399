"""Publish the statuses of the queues: how many jobs wait and run."""

from __future__ import annotations

import asyncio
import collections
import logging
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

from railwright_api import names, routes
from railwright_kube import bodies, errors, paths
from railwright_kube.client import Api
from railwright_operator.report.attempt_metrics import queued_since
from railwright_operator.watch.jobs import Jobs
from railwright_operator.watch.site import Site
from railwright_scheduler.attempt.phases import FINAL

logger = logging.getLogger(__name__)

INTERVAL_S = 5.0

Status = dict[str, Any]


@dataclass(eq=False)
class QueueReporter:
    """Writes these statuses when they change, in a task of its own."""

    api: Api
    _: KW_ONLY
    site: Site
    jobs: Jobs
    absorb: Callable[[Mapping[str, Any]], None]

    def __repr__(self) -> str:
        return f"<QueueReporter {self.site!r}>"

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            await self.report()

    async def report(self) -> None:
        """Write the changed statuses. A failure of one object is logged, not raised."""
        for name, status in self._queues().items():
            await self._write(name, status)

    def _queues(self) -> dict[str, Status]:
        waiting: dict[str, list[str]] = collections.defaultdict(list)
        running: collections.Counter[str] = collections.Counter()
        for cached in self.jobs.all():
            if cached.record.phase in FINAL or cached.job.spec.suspend:
                continue
            if cached.record.live:
                running[cached.job.spec.queue] += 1
            else:
                waiting[cached.job.spec.queue].append(_since(cached.raw))
        return {
            name: {
                "waiting": len(waiting[name]),
                "oldestWaitingSince": min(waiting[name], default=None),
                "running": running[name],
            }
            for name in self.site.queues
        }

    async def _write(self, name: str, status: Status) -> None:
        held = self.site.queue(name)
        if held is None:
            return
        try:
            if patch := bodies.merge_patch(held.status, status):
                body = bodies.status_patch(patch, resource_version=str(held.rv))
                path = paths.status(routes.one(names.QUEUES, name))
                self.absorb(await self.api.patch(path, body))
        except errors.RequestFailed as error:
            extra = {"queue": name, "error": str(error)}
            logger.info("status update failed", extra=extra)
        except Exception as error:
            extra = {"queue": name, "error": str(error)}
            logger.exception("status rendering failed", extra=extra)


def _since(job: Mapping[str, Any]) -> str:
    """Since when a job has waited. One whose stored conditions are not those of the kind counts
    from its creation, and affects no other."""
    created: str = job["metadata"]["creationTimestamp"]
    try:
        return queued_since(job.get("status", {}), created)
    except (AttributeError, KeyError, TypeError):
        return created
