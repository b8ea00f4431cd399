"""Which changes of the informers' informers wake the scheduling cycle at once."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from fixtures import reporting
from railwright_kube.client import Api
from railwright_operator import informers, metrics
from railwright_operator.informers import Informers
from railwright_operator.settings import Settings
from railwright_operator.watch import job_objects
from railwright_operator.watch.records import Exit, PodRecord, Waiting
from railwright_operator.write import pods

LAUNCHER = pods.Launcher("launcher", "http://operator")
SETTINGS = Settings("launcher", "http://operator", ("", 0), ("", 0), "railwright-system", "me")
POD = PodRecord(
    "u", "team", "job-worker-0-1", 1, "n0", "Pending", False, {"pods": 1}, job_uid="job-uid"
)


class Woken:
    """Copies whose changes are counted when they wake the cycle."""

    def __init__(self) -> None:
        self.count = 0
        self.informers: Informers = informers.assemble(
            cast(Api, None),
            SETTINGS,
            launcher=LAUNCHER,
            series=metrics.Metrics(CollectorRegistry()).watch,
            wake=self._wake,
            clock=lambda: 0.0,
            reception_clock=lambda: 0.0,
            rng=lambda: Random(0),
        )

    def _wake(self) -> None:
        self.count += 1


@pytest.mark.parametrize(
    "step",
    [{"phase": "Running"}, {"ready": True}, {"pod_ip": "10.0.0.1"}, {"pulled": ("train",)}],
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
