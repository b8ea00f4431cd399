"""A large job that wants a pre-run, before an API server that fills in what a real one does."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any, cast

from railwright import profile, strides
from railwright.profile import Calls, Operation, Recorded
from railwright_api.training_job import TrainingJob
from railwright_operator.kube import errors
from railwright_operator.kube.client import Api
from railwright_operator.pre_runs import PreRuns, Standing
from railwright_operator.watch.jobs import Jobs
from railwright_operator.write import pods
from railwright_scheduler.isolation import Isolation
from worlds import reporting
from worlds.reporting import Raw, Store

LARGE = "large-uid"
NAME = "large-pre-run"
PATH = "/apis/railwright.dev/v1alpha1/namespaces/team/trainingjobs"
REPLICAS = 8


def large(*, data: int = REPLICAS, version: int = 1, **parts: Any) -> Raw:
    """A job of so many replicas, one a node, that wants a pre-run."""
    model = {"layers": 2, "hidden": 64, "heads": 4, "feedForward": 256, "vocabulary": 100}
    workload = {
        "model": model,
        "parallelism": {"data": data},
        "training": {"sequence": 64, "globalBatch": 3 * data},
    }
    spec = {"workload": workload, "numNodes": data, "preRun": True} | parts.pop("spec", {})
    metadata = {"generation": version} | parts.pop("metadata", {})
    return reporting.raw_job("large", version=version, spec=spec, metadata=metadata, **parts)


SPLIT = {
    "workload": large()["spec"]["workload"] | {"parallelism": {"tensor": 2, "data": 4}},
}
"""The same job, with each replica on two nodes."""


def recorded(ranks: int) -> str:
    calls = Calls(strides.folded(range(ranks)), Operation.ALL_REDUCE, "float32", 2, 64)
    parts = (Recorded(rank, ranks, 2, 0.5, None, (calls,)) for rank in range(ranks))
    return profile.encoded(profile.merged(parts)).decode()


class Made(Store):
    """Fills in what an API server does."""

    numbers = itertools.count(1_000)

    async def create(self, path: str, body: Raw) -> Raw:
        if f"{path}/{body['metadata']['name']}" in self.objects:
            raise errors.AlreadyExistsError(409, "AlreadyExists", message="the name is taken")
        number = next(self.numbers)
        filled = {
            "uid": f"uid-{number}",
            "resourceVersion": str(number),
            "generation": 1,
            "creationTimestamp": "2026-01-02T04:00:00Z",
        }
        TrainingJob.model_validate(body)
        return await super().create(path, body | {"metadata": body["metadata"] | filled})


class Ahead:
    """The operator's pre-runs over jobs that a test changes."""

    def __init__(self) -> None:
        self.now_s, self.store = 1_000.0, Made()
        self.jobs = Jobs(lambda raw: pods.sample(raw, reporting.LAUNCHER))
        self.pre_runs = self.new()

    def new(self) -> PreRuns:
        """Those of a leader that has just begun."""
        return PreRuns(
            cast("Api", self.store),
            jobs=self.jobs,
            wake=lambda: None,
            clock=lambda: self.now_s,
            rng=Random(0),
        )

    async def turn(self, *, after_s: float = 0.0) -> Standing:
        """How the large job stands, this much later; its requests are answered."""
        self.now_s += after_s
        self.pre_runs.look({known.uid: known for known in self.jobs.all()}, Isolation())
        self.pre_runs.act()
        await reporting_idle(self.pre_runs)
        return self.pre_runs.of(LARGE)

    def ahead(self) -> Raw:
        return self.store.objects[f"{PATH}/{NAME}"]

    def stands(self, phase: str, *, suspend: bool = False, **status: Any) -> None:
        """The status of the pre-run is now this."""
        raw = self.ahead()
        live = phase in ("Starting", "Running")
        nodes = {"nodes": ["n0", "n1"]} if live else {}
        facts = {"phase": phase, "attempt": 1, "endedAttempt": 1 - live} | nodes
        if phase == "Queued":
            facts = {"phase": phase}
        version = next(Made.numbers)
        metadata = raw["metadata"] | {"resourceVersion": str(version), "generation": version}
        spec = raw["spec"] | {"suspend": suspend}
        changed = {"metadata": metadata, "spec": spec, "status": facts | status}
        self.store.objects[f"{PATH}/{NAME}"] = raw | changed
        self.jobs.absorb(self.ahead())

    def change(self, **parts: Any) -> None:
        """The large job is now this."""
        self.jobs.absorb(large(version=next(Made.numbers), **parts))

    def vanishes(self) -> None:
        """Somebody deletes the pre-run."""
        self.jobs.discard(self.store.objects.pop(f"{PATH}/{NAME}")["metadata"]["uid"])


async def reporting_idle(parts: PreRuns) -> None:
    for task in list(parts._under_way.values()):
        await task
