"""Publish the statuses of the queues: how many jobs wait and run. Create the one of jobs that name
none, if it is missing."""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from random import Random
from typing import Any

from railwright_api import names, routes
from railwright_kube import bodies, errors, paths
from railwright_kube.backoff import Backoff
from railwright_kube.client import Api
from railwright_kube.object_writes import ObjectWrites
from railwright_operator.report.attempt_metrics import queued_since
from railwright_operator.watch.jobs import Jobs
from railwright_operator.watch.site import Site
from railwright_operator.write import defaults
from railwright_scheduler.attempt.phases import FINAL

INTERVAL_S = 5.0

PAUSE_S_MAX = 300.0
"""The longest pause of a queue whose status is refused again and again."""

Status = dict[str, Any]


@dataclass(eq=False)
class QueueReporter:
    """Writes these statuses when they change, in a task of its own."""

    api: Api
    _: KW_ONLY
    site: Site
    jobs: Jobs
    absorb: Callable[[Mapping[str, Any]], None]
    clock: Callable[[], float]
    rng: Random

    def __post_init__(self) -> None:
        self._writes: ObjectWrites[str] = ObjectWrites(
            names.QUEUES, backoff=Backoff(INTERVAL_S, PAUSE_S_MAX), clock=self.clock, rng=self.rng
        )

    def __repr__(self) -> str:
        return f"<QueueReporter {self.site!r}>"

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            await self.report()

    async def report(self) -> None:
        """Write what changed. A failure of one object is logged, not raised."""
        queues = self._queues()
        self._writes.forget_unless({*queues, names.SINGLETON}.__contains__)
        if names.SINGLETON not in queues and self._writes.is_due(names.SINGLETON):
            await self._writes.write(names.SINGLETON, partial(defaults.ensure, self.api))
        for name, status in queues.items():
            if self._writes.is_due(name):
                await self._writes.write(name, partial(self._write, name, status))

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
        if patch := bodies.merge_patch(held.status, status):
            body = bodies.status_patch(patch, resource_version=str(held.rv))
            path = routes.one(names.QUEUES, name)
            try:
                found = await self.api.patch(paths.status(path), body)
            except errors.ConflictError:
                # The answer to an earlier write may be lost, and the watch late.
                found = await self.api.get(path)
            self.absorb(found)


def _since(job: Mapping[str, Any]) -> str:
    """Since when a job has waited. One whose stored conditions are not those of the kind counts
    from its creation, and affects no other."""
    created: str = job["metadata"]["creationTimestamp"]
    try:
        return queued_since(job.get("status", {}), created)
    except (AttributeError, KeyError, TypeError):
        return created
