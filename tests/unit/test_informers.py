"""Which changes of the informers' informers wake the scheduling cycle at once."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from fixtures import reporting
from fixtures.reporting import Raw
from railwright_kube.client import Api
from railwright_kube.core_v1 import Waiting
from railwright_kube.watching import Watching
from railwright_operator import metrics
from railwright_operator.informers import Informers
from railwright_operator.watch import job_objects
from railwright_operator.watch.records import Exit, PodRecord
from railwright_operator.write import rendering
from railwright_watch import cluster_objects

LAUNCHER = rendering.Launcher("launcher", "http://operator")
POD = PodRecord(
    "u", "team", "job-worker-0-1", 1, "n0", "Pending", False, {"pods": 1}, job_uid="job-uid"
)


class Woken:
    """Copies whose changes are counted when they wake the cycle."""

    def __init__(self) -> None:
        self.count = 0
        series = metrics.Metrics(CollectorRegistry()).watch
        watching = Watching(cast(Api, None), series, lambda: 0.0, lambda: Random(0), self._wake)
        self.informers = Informers(watching, launcher=LAUNCHER, reception_clock=lambda: 0.0)

    def _wake(self) -> None:
        self.count += 1


@pytest.mark.parametrize(
    "step",
    [{"phase": "Running"}, {"pulled": ("train",)}],
    ids=str,
)
def test_pod_that_starts_wakes_no_cycle(step: dict[str, Any]) -> None:
    woken = Woken()
    woken.informers.pods.absorb(POD)
    assert woken.count == 1
    woken.informers.pods.absorb(replace(POD, **step, rv=2))
    assert woken.count == 1
    (held,) = woken.informers.pods.records.values()
    assert held.rv == 2
    assert woken.informers.pod_index.of(("job-uid", 0)) == (held,)


@pytest.mark.parametrize(
    "change",
    [
        {"node": "other"},
        {"phase": "Failed"},
        {"phase": "Succeeded"},
        {"deleting": True},
        {"requests": {"pods": 2}},
        {"exit": Exit(1)},
        {"waiting": Waiting("ErrImagePull")},
        {"disruption": "EvictionByEvictionAPI"},
        {"reason": "Evicted"},
        {"job_uid": None},
    ],
    ids=str,
)
def test_change_of_a_pod_that_a_plan_depends_on_wakes_a_cycle(change: dict[str, Any]) -> None:
    woken = Woken()
    woken.informers.pods.absorb(POD)
    woken.informers.pods.absorb(replace(POD, **change, rv=2))
    assert woken.count == 2


def test_status_that_the_operator_wrote_wakes_no_cycle() -> None:
    woken = Woken()
    raw = reporting.raw_job("job")
    woken.informers.jobs.absorb(raw)
    woken.informers.job_objects.absorb(job_objects.answered(raw))
    assert woken.count == 0
    raw["metadata"]["resourceVersion"] = "1000"
    woken.informers.job_objects.absorb(job_objects.answered(raw))
    assert woken.count == 1
    assert woken.informers.jobs.get("job-uid") is not None


def test_only_the_spec_of_a_queue_wakes_a_cycle() -> None:
    """Its status is that of the operator itself."""
    woken = Woken()

    def arrive(version: int, **parts: Any) -> int:
        raw = reporting.raw_object("a", version=version, **parts)
        woken.informers.queues.absorb(cluster_objects.answered(raw))
        return woken.count

    assert arrive(1) == 1
    assert arrive(2, status={"waiting": 3}) == 1
    queue = woken.informers.site.queue("a")
    assert queue is not None
    assert queue.status == {"waiting": 3}
    assert arrive(3, spec={"more": 1}, status={"waiting": 3}) == 2


def test_only_another_topology_of_the_fabric_wakes_a_cycle() -> None:
    woken = Woken()
    first: Raw = {"levels": [], "places": [{"domains": [], "nodes": "n0"}]}
    second: Raw = {"levels": [], "places": [{"domains": [], "nodes": "n1"}]}

    def arrive(version: int, name: str = "default", **parts: Any) -> int:
        raw = reporting.raw_object(name, version=version, **parts)
        woken.informers.fabrics.absorb(cluster_objects.answered(raw))
        return woken.count

    assert arrive(1) == 0
    assert arrive(2, status={"topology": first}) == 1
    assert [*woken.informers.interconnect.interconnect.places] == ["n0"]
    status = {"topology": first, "nodes": 1, "freshness": {"checked": "2026-01-02T03:04:05Z"}}
    assert arrive(3, status=status) == 1
    assert arrive(4, status=status, spec={"levels": ["rack"]}) == 1
    assert arrive(5, status=status | {"topology": second}) == 2
    assert [*woken.informers.interconnect.interconnect.places] == ["n1"]
    assert arrive(6, status={}) == 2
    assert arrive(7, "another", status={"topology": first}) == 2
    assert [*woken.informers.interconnect.interconnect.places] == ["n1"]
