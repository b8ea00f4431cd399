"""Reporters over an API server's memory: its versions and preconditions, and refusals on request.

For what a real server cannot be brought to do at the right moment, such as to lose an object while
a patch of it is on its way.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, cast

from prometheus_client import CollectorRegistry

from railwright_operator.faults import JobFaults
from railwright_operator.heartbeats.sessions import Sessions
from railwright_operator.kube import errors, paths
from railwright_operator.kube.client import Api
from railwright_operator.kube.errors import RequestFailed
from railwright_operator.observe import Observer
from railwright_operator.pre_runs import NOTHING, Standing
from railwright_operator.report.commits import Commits
from railwright_operator.report.cycle_metrics import CycleMetrics
from railwright_operator.report.events import Events
from railwright_operator.report.reporter import Reporter
from railwright_operator.watch.jobs import Jobs, Known
from railwright_operator.write import pods
from railwright_scheduler import Reason
from railwright_scheduler.attempt.gang import Action
from railwright_scheduler.attempt.ledger import Ledger
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.double_booking import DoubleBooking
from railwright_scheduler.turn import Turn
from worlds import merging

Raw = dict[str, Any]
STEPS = 100
LAUNCHER = pods.Launcher("launcher", "http://operator")


def raw_object(name: str, *, version: int = 1, **parts: Any) -> Raw:
    """A Queue, a Fabric or a job as the API server sends it."""
    metadata = {
        "name": name,
        "namespace": "team",
        "uid": f"{name}-uid",
        "generation": 1,
        "resourceVersion": str(version),
        "creationTimestamp": "2026-01-02T03:04:05Z",
    }
    return {"metadata": metadata | parts.pop("metadata", {}), "spec": {}, **parts}


def raw_job(name: str, *, pod: Raw | None = None, **parts: Any) -> Raw:
    """A job of two nodes. ``pod`` are fields of its pods; ``spec`` and ``status`` may be given."""
    container = {"name": "train", "image": "image", "command": ["train"]}
    template = {"spec": {"containers": [container]} | (pod or {})}
    spec = {"numNodes": 2, "template": template} | parts.pop("spec", {})
    return raw_object(name, kind="TrainingJob", spec=spec, **parts)


class Store:
    """Objects by path. ``refusals`` answer a verb on a path; ``meanwhile`` happens before it."""

    def __init__(self) -> None:
        self.objects: dict[str, Raw] = {}
        self.requests: list[tuple[str, str]] = []
        self.refusals: dict[tuple[str, str], RequestFailed] = {}
        self.meanwhile: dict[tuple[str, str], Callable[[], None]] = {}
        self._versions = itertools.count(100)

    def put(self, path: str, raw: Raw) -> Raw:
        self.objects[path] = raw
        return raw

    async def get(self, path: str) -> Raw:
        await self._ask("get", path)
        return self._found(path)

    async def create(self, path: str, body: Raw) -> Raw:
        await self._ask("create", path)
        return self.put(f"{path}/{body['metadata']['name']}", body)

    async def delete(self, path: str, body: Raw) -> Raw:
        await self._ask("delete", path)
        found = self._found(path)
        assert body["preconditions"]["uid"] == found["metadata"]["uid"]
        return self.objects.pop(path)

    async def patch(self, path: str, body: Raw) -> Raw:
        await self._ask("patch", path)
        whole = path.removesuffix("/status")
        found = self._found(whole)
        if found["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
            raise errors.ConflictError(409, "Conflict", message="another version")
        found["status"] = merging.merged(found.get("status"), body["status"])
        found["metadata"]["resourceVersion"] = str(next(self._versions))
        self.objects[whole] = found
        return copy.deepcopy(found)

    def count(self, verb: str, path: str = "") -> int:
        return sum(one == verb and path in where for one, where in self.requests)

    async def _ask(self, verb: str, path: str) -> None:
        self.requests.append((verb, path))
        await asyncio.sleep(0)
        self.meanwhile.get((verb, path), lambda: None)()
        if (verb, path) in self.refusals:
            raise self.refusals[verb, path]

    def _found(self, path: str) -> Raw:
        if path not in self.objects:
            raise errors.NotFoundError(404, "NotFound", message=path)
        return copy.deepcopy(self.objects[path])


@dataclass
class Seen:
    """What a reporter asks of the observer: the jobs as the plan knew them."""

    jobs: Mapping[str, Known] = field(default_factory=dict)
    standing: Mapping[str, Standing] = field(default_factory=dict)

    def known(self, uid: str) -> Known | None:
        return self.jobs.get(uid)

    def pre_run(self, uid: str) -> Standing:
        return self.standing.get(uid, NOTHING)

    def racks(self, nodes: tuple[str, ...]) -> int | None:
        return 1 if nodes else None

    def unprofiled(self, known: Known, nodes: tuple[str, ...]) -> tuple[()]:
        return ()

    def ranks(self, uid: str) -> tuple[()]:
        return ()


class Desk:
    """A reporter with real parts over a store; ``now_s`` is its clock."""

    def __init__(self) -> None:
        self.store, self.now_s, self.seen = Store(), 1000.0, Seen()
        self.woken = 0
        api = cast("Api", self.store)
        self.jobs = Jobs(lambda raw: pods.sample(raw, LAUNCHER))
        self.commits = Commits(lambda: None)
        self.sessions = Sessions(clock=self.clock, wake=lambda: None)
        self.registry = CollectorRegistry()
        self.metrics = metrics = CycleMetrics(self.registry)
        self.events = Events(api, instance="me", dropped=metrics.events_dropped, clock=self.clock)
        self.reporter = Reporter(
            api,
            jobs=self.jobs,
            sessions=self.sessions,
            commits=self.commits,
            events=self.events,
            faults=JobFaults(self.jobs, raised=metrics.job_faults, clock=self.clock, rng=Random(0)),
            metrics=metrics,
            observer=cast("Observer", self.seen),
            wake=self.wake,
            clock=self.clock,
            rng=Random(0),
        )

    def clock(self) -> float:
        return self.now_s

    def wake(self) -> None:
        self.woken += 1

    def add(self, raw: Raw) -> str:
        """A job that exists and was seen; its path."""
        self.jobs.absorb(copy.deepcopy(raw))
        path = paths.one("trainingjobs", raw["metadata"]["name"], namespace="team")
        self.store.put(path, raw)
        return path

    async def turn(
        self,
        records: Mapping[str, JobRecord] | None = None,
        *,
        waits: Reason | None = None,
        double_bookings: tuple[DoubleBooking, ...] = (),
        actions: tuple[Action, ...] = (),
        unobserved: frozenset[str] = frozenset(),
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        """One turn's report: records that changed by UID; ``waits`` is why all of them wait.

        ``meanwhile`` happens between the look at the world and the report.
        """
        self.seen.jobs = {known.uid: known for known in self.jobs.all()}
        now = {uid: known.record for uid, known in self.seen.jobs.items()} | dict(records or {})
        now = {uid: record for uid, record in now.items() if uid not in unobserved}
        plan = Turn(
            ledger=Ledger(1, "i", "me"),
            actions=actions,
            records=now,
            waits={} if waits is None else dict.fromkeys(now, waits),
            assessments={},
            double_bookings=double_bookings,
            unobserved=unobserved,
        )
        meanwhile()
        self.metrics.observe(plan)
        await self.reporter.report(plan)
        await _settled()

    async def told(self) -> list[tuple[str, str]]:
        """Reason and note of every event posted so far, the oldest first."""
        posting = asyncio.create_task(self.events.run())
        await _settled()
        posting.cancel()
        assert "waiting=0" in repr(self.events)
        await asyncio.gather(posting, return_exceptions=True)
        posted = [raw for path, raw in self.store.objects.items() if "/events/" in path]
        return [(raw["reason"], raw["note"]) for raw in posted]


async def _settled() -> None:
    """Everything that was started has come as far as it can: a store answers within a few steps."""
    for _ in range(STEPS):
        await asyncio.sleep(0)
