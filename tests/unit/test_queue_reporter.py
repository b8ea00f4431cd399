"""The statuses of queues: what waits and runs in them, and a failed write affects no other."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, cast

import pytest

from fixtures import reporting
from fixtures.reporting import Raw, Store
from railwright_api import names, routes
from railwright_api.queue import QueueStatus
from railwright_kube import errors, paths
from railwright_kube.client import Api
from railwright_kube.errors import RequestFailed
from railwright_operator.report.queues import INTERVAL_S, QueueReporter
from railwright_watch import cluster_objects


class QueueSite:
    """A reporter of two queues, which exist and are cached."""

    def __init__(self) -> None:
        self.store, self.now_s = Store(), 0.0
        self.informers = reporting.informers_of(self.store)
        self.site, self.jobs = self.informers.site, self.informers.jobs
        self.reporter = QueueReporter(
            cast("Api", self.store),
            site=self.site,
            jobs=self.jobs,
            absorb=self.informers.absorb_queue,
            clock=lambda: self.now_s,
            rng=Random(0),
        )
        for name in ("a", "b"):
            self.add(reporting.raw_object(name))
        # The one that the operator would create, of which these tests count no write.
        default = reporting.raw_object(names.SINGLETON, status={"waiting": 0, "running": 0})
        self.add(default)

    def add(self, raw: Raw) -> None:
        """Store and cache this queue."""
        self.informers.queues.absorb(cluster_objects.answered(raw))
        self.store.put(routes.one(names.QUEUES, raw["metadata"]["name"]), raw)

    def remove(self, name: str) -> None:
        """Delete a queue."""
        raw = self.store.objects.pop(routes.one(names.QUEUES, name))
        self.informers.queues._put(cluster_objects.answered(raw), None)

    def job(self, name: str, queue: str, *, suspend: bool = False, **status: Any) -> None:
        spec = {"queue": queue, "suspend": suspend}
        self.jobs.absorb(reporting.raw_job(name, spec=spec, status=status))

    def status(self, name: str) -> Any:
        return self.store.objects[routes.one(names.QUEUES, name)].get("status")

    def while_patching(self, name: str, act: Callable[[], None]) -> None:
        path = paths.status(routes.one(names.QUEUES, name))
        self.store.meanwhile["patch", path] = act


async def test_waiting_and_running_jobs_are_counted() -> None:
    """Suspended and finished ones are not, nor those of a queue that does not exist."""
    queues = QueueSite()
    queues.job("new", "a")
    queues.job("backed-off", "a", phase="Queued", attempt=1, endedAttempt=1)
    queues.job("starts", "a", phase="Starting", attempt=1)
    queues.job("runs", "b", phase="Running", attempt=1)
    queues.job("suspended", "b", suspend=True)
    queues.job("done", "b", phase="Succeeded", attempt=1, endedAttempt=1)
    queues.job("elsewhere", "none")
    await queues.reporter.report()
    assert queues.status("a") == {
        "waiting": 2,
        "running": 1,
        "oldestWaitingSince": "2026-01-02T03:04:05Z",
    }
    assert queues.status("b") == {"waiting": 0, "running": 1}
    for name in ("a", "b"):
        QueueStatus.model_validate(queues.status(name))


async def test_oldest_wait_began_when_the_job_lost_its_nodes() -> None:
    """Its creation counts only until it got some."""
    queues = QueueSite()
    for name, time in (("first", "2026-03-01T00:00:00Z"), ("second", "2026-02-01T00:00:00Z")):
        lost = {"type": "Scheduled", "status": "False", "lastTransitionTime": time}
        queues.job(name, "a", phase="Recovering", attempt=1, endedAttempt=1, conditions=[lost])
    await queues.reporter.report()
    assert queues.status("a")["oldestWaitingSince"] == "2026-02-01T00:00:00Z"
    assert "oldestWaitingSince" not in queues.status("b")


@pytest.mark.parametrize("conditions", [None, [{"type": "Scheduled", "status": "False"}], ["x"]])
async def test_job_with_odd_conditions_counts_from_its_creation(conditions: object) -> None:
    """A later version may have stored them; those of other jobs are counted too."""
    queues = QueueSite()
    queues.job("odd", "a", conditions=conditions)
    queues.job("new", "b")
    await queues.reporter.report()
    expected = {"waiting": 1, "running": 0, "oldestWaitingSince": "2026-01-02T03:04:05Z"}
    assert (queues.status("a"), queues.status("b")) == (expected, expected)


async def test_unchanged_statuses_are_not_written_again() -> None:
    queues = QueueSite()
    await queues.reporter.report()
    await queues.reporter.report()
    assert queues.store.count("patch") == 2
    queues.job("new", "a")
    await queues.reporter.report()
    assert queues.store.count("patch") == 3


async def test_queue_deleted_during_its_write_stays_deleted() -> None:
    """The response to the write does not restore the cached queue."""
    queues = QueueSite()
    queues.while_patching("a", lambda: queues.remove("a"))
    await queues.reporter.report()
    assert queues.site.queues == ("b", names.SINGLETON)
    assert queues.status("b") == {"waiting": 0, "running": 0}


async def test_queue_deleted_while_another_is_written_is_left_out() -> None:
    queues = QueueSite()
    queues.while_patching("a", lambda: queues.remove("b"))
    await queues.reporter.report()
    assert queues.site.queues == ("a", names.SINGLETON)
    assert queues.store.count("patch") == 1


async def test_spec_that_a_person_sets_during_the_write_stays() -> None:
    queues = QueueSite()
    newer = reporting.raw_object("a", version=2, spec={"more": 1})
    queues.while_patching("a", lambda: queues.add(newer))
    await queues.reporter.report()
    assert queues.status("a") is None
    queues.store.meanwhile.clear()
    queues.now_s += INTERVAL_S
    await queues.reporter.report()
    assert queues.status("a") == {"waiting": 0, "running": 0}
    assert queues.store.objects[routes.one(names.QUEUES, "a")]["spec"] == {"more": 1}


@pytest.mark.parametrize("fault", [errors.Unreachable("x"), errors.NotLeader("x")])
async def test_write_that_fails_leaves_the_others(fault: RequestFailed) -> None:
    queues = QueueSite()
    queues.store.refusals["patch", paths.status(routes.one(names.QUEUES, "a"))] = fault
    await queues.reporter.report()
    assert queues.status("a") is None
    assert queues.status("b") == {"waiting": 0, "running": 0}


async def test_refused_queue_is_written_seldom() -> None:
    """A policy of the site may refuse one for ever; changes of another are written at once."""
    queues = QueueSite()
    refused = errors.ForbiddenError(403, "Forbidden", message="a policy")
    queues.store.refusals["patch", paths.status(routes.one(names.QUEUES, "a"))] = refused
    for number in range(100):
        queues.job(f"job-{number}", "b")
        await queues.reporter.report()
        assert queues.status("b")["waiting"] == number + 1
        queues.now_s += INTERVAL_S
    assert 105 <= queues.store.count("patch") <= 109


async def test_queue_of_an_unknown_version_is_read() -> None:
    """The answer to an earlier write was lost, and the watch does not bring the version."""
    queues = QueueSite()
    path = routes.one(names.QUEUES, "a")
    queues.store.objects[path] = reporting.raw_object("a", version=9, status={"waiting": 3})
    await queues.reporter.report()
    queues.now_s += INTERVAL_S
    await queues.reporter.report()
    assert queues.status("a")["waiting"] == 0
    assert queues.store.count("get", path) == 1


async def test_unreadable_queue_does_not_affect_others() -> None:
    queues = QueueSite()
    del queues.store.objects[routes.one(names.QUEUES, "a")]
    queues.add(reporting.raw_object("aa", status="none"))
    await queues.reporter.report()
    assert queues.status("b") == {"waiting": 0, "running": 0}


async def test_annotated_queue_is_written_on() -> None:
    """It has another version, and else nothing new."""
    queues = QueueSite()
    queues.add(reporting.raw_object("a", version=2, metadata={"annotations": {"owner": "site"}}))
    await queues.reporter.report()
    assert queues.status("a") == {"waiting": 0, "running": 0}


async def test_queue_of_jobs_that_name_none_is_created_again() -> None:
    """While a policy refuses it, other queues are written, and it is tried after a pause."""
    queues = QueueSite()
    queues.remove(names.SINGLETON)
    refusal = errors.ForbiddenError(403, "Forbidden", message="a policy")
    queues.store.refusals["create", routes.kind(names.QUEUES)] = refusal
    for _ in range(3):
        await queues.reporter.report()
    assert queues.status("a")["waiting"] == 0
    assert queues.store.count("create") == 1
    queues.store.refusals.clear()
    queues.now_s += 2 * INTERVAL_S
    await queues.reporter.report()
    assert routes.one(names.QUEUES, names.SINGLETON) in queues.store.objects
