"""Publish the status of the Fabric."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from random import Random
from typing import Any

from railwright_api import names, routes
from railwright_controllers.discovery import Discovery, FabricState
from railwright_controllers.report import fabric, kept
from railwright_controllers.report.fabric import FabricSummary
from railwright_controllers.watch.fabric import FabricCache
from railwright_conversion import bounds
from railwright_kube import bodies, errors, paths
from railwright_kube.backoff import Backoff
from railwright_kube.client import Api
from railwright_kube.reflector import Reflector
from railwright_watch import cluster_objects
from railwright_watch.cluster_objects import ClusterObject
from railwright_watch.nodes import NodeRecord

logger = logging.getLogger(__name__)

INTERVAL_S = 5.0
"""A changed fabric is published at once, everything else at this interval."""
PAUSE_S = Backoff(0.5, 60.0)
"""The shortest pause between two reports, so that a burst of changes is one write, and the longest
after failures in a row."""
REPLACED_S = 5.0
"""A Fabric that is deleted is created again after this time."""
OF_PROCESS = frozenset({"agents", "freshness", "problems", "problemCount"})
"""The fields that are of this process, and not of the sources."""
FRESH_S = 60.0
"""How often ``status.freshness`` is written."""

FABRIC = routes.one(names.FABRICS, names.SINGLETON)

Status = dict[str, Any]


@dataclass(eq=False, repr=False)
class FabricReporter:
    """Writes the status when it changes, in a task of its own, and creates the Fabric if there is
    none. ``unsurveyed`` returns what prevents surveys, ``late`` which caches may be old. ``clock``
    is monotonic; ``wall_clock`` is Unix time."""

    api: Api
    _: KW_ONLY
    cache: FabricCache
    fabrics: Reflector[ClusterObject]
    discovery: Discovery
    unsurveyed: Callable[[], Iterable[str]]
    late: Callable[[], Iterable[str]]
    nodes: Mapping[str, NodeRecord]
    clock: Callable[[], float]
    wall_clock: Callable[[], float]
    rng: Random

    def __post_init__(self) -> None:
        self._summarized: FabricState | None = None
        self._summary = FabricSummary()
        self._interim: Status | None = None
        self._completed_s = self.clock()
        self._fresh_s: float | None = None
        self._absent_s: float | None = None

    def completed_age_s(self) -> float:
        """Seconds since a report was last completed."""
        return self.clock() - self._completed_s

    async def run(self) -> None:
        """Report until cancelled."""
        self._completed_s, failures = self.clock(), 0
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(INTERVAL_S - PAUSE_S.base_s):
                    await self.discovery.refreshed.wait()
            self.discovery.refreshed.clear()
            failures = 0 if await self.report() else failures + 1
            self._completed_s = self.clock()
            await asyncio.sleep(PAUSE_S.delay_s(failures, self.rng))

    async def report(self) -> bool:
        """Write the status if it changed. A failure is logged, and False is returned."""
        try:
            if self.cache.held is None:
                await self._create()
                return True
            self._absent_s = None
            status = await self._status()
            if self.cache.held is not None:  # It may have changed meanwhile.
                await self._write(self.cache.held, status)
        except errors.RequestFailed as error:
            extra = {"kind": names.FABRICS, "error": str(error)}
            logger.info("status update failed", extra=extra)
        except Exception as error:
            extra = {"kind": names.FABRICS, "error": str(error)}
            logger.exception("status rendering failed", extra=extra)
        else:
            return True
        return False

    async def _create(self) -> None:
        """Create the Fabric. One that was deleted gets the spec that it had, after ``REPLACED_S``:
        it may be replaced by somebody."""
        now_s, spec = self.clock(), self.cache.spec
        if self._absent_s is None:
            self._absent_s = now_s
        if (spec or self.cache.published) and now_s - self._absent_s < REPLACED_S:
            return
        metadata = {"name": names.SINGLETON}
        body = bodies.manifest(names.API_VERSION, "Fabric", metadata, dict(spec))
        with contextlib.suppress(errors.AlreadyExistsError):
            self._absorb(await self.api.create(routes.kind(names.FABRICS), body))

    async def _status(self) -> Status:
        """The whole status, without its freshness; empty if there is nothing to publish yet."""
        # All of one moment: an assembly can end while this one is rendered.
        found, is_assembled = self.discovery.found, self.discovery.is_assembled
        unread, is_caught_up = self.discovery.unread_files(), self.discovery.is_caught_up
        if not is_assembled and not found.problem:
            return {}
        if is_assembled and found is not self._summarized:
            self._summary = await asyncio.to_thread(fabric.summarize, found)
            self._interim = None
            self._summarized = found
        agents, published = self.discovery.agents(), self.cache.published
        problems = await fabric.problems(
            found,
            self.nodes,
            self.clock,
            agents=agents,
            unsurveyed=self.unsurveyed(),
            unpublished=(
                *self._summary.problems,
                *self._outdated(),
                *(f"all that was published stays until {file} is valid again" for file in unread),
            ),
            kept=None
            if is_caught_up
            else kept.entries(published.get("problems") or (), found.fabric.places),
        )
        if unread or not is_assembled:
            status = {name: published[name] for name in published.keys() - OF_PROCESS}
        else:
            status = self._summary.status | self._of_reports(found, is_caught_up=is_caught_up)
            status["topology"] = await self._topology(found, is_caught_up=is_caught_up)
        counts = fabric.agents_status(agents) if is_caught_up else published.get("agents")
        topology = status.pop("topology", None)
        rest = status | {"agents": counts} | problems
        rest = bounds.shortened(rest, fabric.REST_BYTES_MAX, whole=fabric.WHOLE)
        return rest | {"topology": topology}

    def _outdated(self) -> tuple[str, ...]:
        """Why the status may be out of date."""
        return *filter(None, [self.discovery.delay]), *self.late()

    def _of_reports(self, found: FabricState, *, is_caught_up: bool) -> Status:
        """What stays published until agents have reported."""
        published = self.cache.published
        if is_caught_up or "nodes" not in published:
            return {}
        cabled = self._summary.status.keys() - {"nodes"}
        names_kept = cabled if found.fabric.networks else kept.OF_REPORTS
        return kept.fields(published, names_kept, found.fabric.places)

    async def _topology(self, found: FabricState, *, is_caught_up: bool) -> Status | None:
        """The topology for scheduling. A process that has just started keeps what is published
        until it has assembled its own; of cables, until agents have reported, as these determine
        which adapters are front-end."""
        published = self.cache.published
        held: Status | None = published.get("topology")
        if held is not None and found.fabric.networks and not is_caught_up:
            if self._interim is None:
                self._interim = await asyncio.to_thread(kept.topology, published, found.fabric)
            return self._interim
        self._interim = None  # A node that gets Ready can be awaited later.
        return self._summary.topology or held

    async def _write(self, held: ClusterObject, status: Status) -> None:
        """Replace the stored status by this one, unless it is empty."""
        if not status:
            return
        now_s = self.clock()
        is_due = self._fresh_s is None or now_s - self._fresh_s >= FRESH_S
        is_due |= not held.status.get("freshness")
        is_fresh = is_due and not self._outdated()
        status["freshness"] = self._freshness() if is_fresh else held.status.get("freshness")
        if patch := bodies.merge_patch(held.status, status):
            body = bodies.status_patch(patch, resource_version=str(held.rv))
            self._absorb(await self.api.patch(paths.status(FABRIC), body))
        if is_fresh:
            self._fresh_s = now_s

    def _freshness(self) -> Status:
        oldest_report_s = self.discovery.agents().oldest_age_s
        status = fabric.freshness(self.wall_clock(), oldest_report_s=oldest_report_s)
        if not self.discovery.is_caught_up:
            before = self.cache.published.get("freshness") or {}
            status["oldestReport"] = before.get("oldestReport", status["oldestReport"])
        return status

    def _absorb(self, answer: Mapping[str, Any]) -> None:
        self.fabrics.absorb(cluster_objects.answered(answer))
