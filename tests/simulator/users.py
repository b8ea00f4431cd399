"""What users do with their jobs."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

from railwright_api import names, routes
from railwright_api.training_job import TrainingJobSpec
from simulator.api_server import ApiServer
from simulator.emphasis import Emphasis
from simulator.machines import GPU
from simulator.statuses import StatusError
from simulator.workloads import Workloads

Json = dict[str, Any]

NAMESPACE = "team"
NAMES = ("a", "b", "c", "d", "e", "f", "g", "h")
BACKOFFS = ((0, 300), (1, 400), (1, 86_400), (6, 86_400))
DEADLINES_S: tuple[int | None, ...] = (None, None, None, 60, 400)
TWO_GROUPS = 0.3
"""The share of jobs with two groups of ranks, where some have."""

ROLES = ("server", "worker", "actor", "evaluator")
GROUPS = ("train", "train", "rollout")
FEW_REPLICAS = (1, 1, 2, 3)
"""Of jobs with several roles: their names, the groups they may share, and the pods of a role."""

Roles = tuple[tuple[str, str, int, int], ...]
"""The name, group (empty for its own), replicas and GPUs of a pod of each role of a job."""


class Users:
    """They create, change and delete jobs. Most have one role."""

    def __init__(self, server: ApiServer, rng: Random, workloads: Workloads) -> None:
        self._server = server
        self._rng = rng
        self._workloads = workloads
        self._names: tuple[str, ...] = NAMES
        self._steps: tuple[int, ...] = (1,)
        self._replicas: tuple[int, ...] = (1,)
        self._backoff = rng.choice(BACKOFFS)
        self._deadlines_s = DEADLINES_S if rng.random() < 0.3 else ()
        self._two_groups = TWO_GROUPS if rng.random() < 0.5 else 0.0
        self._roles = 0
        self.steps: dict[str, int] = {}

    def draw(self, emphasis: Emphasis, *, names: int) -> None:
        """What their jobs are like in a run with this emphasis, and how many names they have."""
        self._names, self._steps = NAMES[:names], emphasis.steps
        self._replicas = emphasis.replicas
        self._backoff = self._rng.choice(emphasis.backoffs) if emphasis.backoffs else self._backoff
        self._deadlines_s = emphasis.deadlines_s or self._deadlines_s
        self._two_groups = emphasis.two_groups or self._two_groups
        self._roles = emphasis.roles

    def total_steps(self, job_uid: str) -> int:
        """How many steps the training of a job takes."""
        return self.steps.setdefault(job_uid, self._rng.choice(self._steps))

    @property
    def jobs(self) -> list[Json]:
        """All jobs there are."""
        return self._server.objects(routes.kind(names.TRAINING_JOBS))

    def create(self) -> str:
        """Create a job under one of their few names, if that is free."""
        name, spec = self._rng.choice(self._names), self._spec()
        body = {
            "apiVersion": names.API_VERSION,
            "kind": "TrainingJob",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": spec,
        }
        return (
            name if self._request("POST", routes.kind(names.TRAINING_JOBS, NAMESPACE), body) else ""
        )

    def delete(self) -> str:
        """Delete a job."""
        return self._to_a_job(lambda job: self._request("DELETE", _path(job)))

    def replace(self) -> str:
        """Delete a job, and create another one of its name at once."""
        name = self.delete()
        if name:
            self.create()
        return name

    def suspend(self) -> str:
        """Suspend a job."""
        return self._to_a_job(lambda job: self._patch(job, {"suspend": True}))

    def resume(self) -> str:
        """Resume a job."""
        return self._to_a_job(lambda job: self._patch(job, {"suspend": False}))

    def reshape(self) -> str:
        """Suspend a job, then change the number of its pods, or what they request; now and then it
        is resumed at once."""

        def change(job: Json) -> None:
            self._patch(job, {"suspend": True})
            goes_on = self._rng.random() < 0.5
            roles = self._spec()["roles"]
            training = job["spec"].get("workload", {}).get("role", roles[0]["name"])
            if training in (role["name"] for role in roles):
                self._patch(job, {"roles": roles, "suspend": not goes_on})

        return self._to_a_job(change)

    def change_profiling(self) -> str:
        """What the ranks of a job with a workload are to record becomes something else."""

        def change(job: Json) -> None:
            if "workload" in job["spec"]:
                self._patch(job, {"profiling": self._workloads.draw_profiling()})

        return self._to_a_job(change)

    def _to_a_job(self, act: Any) -> str:
        jobs = self.jobs
        if not jobs:
            return ""
        job = self._rng.choice(jobs)
        act(job)
        return str(job["metadata"]["name"])

    def _patch(self, job: Json, spec: Mapping[str, Any]) -> Any:
        return self._request("PATCH", _path(job), {"spec": spec})

    def _spec(self) -> dict[str, Any]:
        rng = self._rng
        spec = _complete(
            tuple(self._draw_roles()),
            *self._backoff,
            rng.choice(self._deadlines_s) if self._deadlines_s else None,
        )
        training = rng.randrange(len(spec["roles"])) if self._roles else 0
        return self._workloads.declare(spec, training=training)

    def _draw_roles(self) -> Iterator[tuple[str, str, int, int]]:
        rng = self._rng
        if self._roles:
            for name in ROLES[: rng.randint(1, self._roles)]:
                group = rng.choice(("", *GROUPS))
                yield name, group, rng.choice(FEW_REPLICAS), rng.choice((0, 1, 4, 8))
            return
        yield "worker", "", rng.choice(self._replicas), rng.choice((1, 4, 8))
        if self._two_groups and rng.random() < self._two_groups:
            yield "evaluator", "evaluator", 1, rng.choice((0, 1))

    def _request(self, method: str, path: str, body: Any = None) -> Any:
        try:
            return self._server.request(method, path, body)
        except StatusError:
            return None


@functools.lru_cache(maxsize=512)
def _spec_of(roles: Roles, backoff: int, window_s: int, deadline_s: int | None) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "roles": [
            {
                "name": name,
                "replicas": replicas,
                **({"group": group} if group else {}),
                "template": {"spec": {"containers": [_container(gpus)]}},
            }
            for name, group, replicas, gpus in roles
        ],
        "failurePolicy": {"backoffLimit": backoff, "windowSeconds": window_s},
    }
    if deadline_s is not None:
        spec["activeDeadlineSeconds"] = deadline_s
    found = TrainingJobSpec.model_validate(spec)
    return found.model_dump(by_alias=True, exclude_none=True, mode="json")


def _complete(*parts: Any) -> dict[str, Any]:
    """A spec as the API server stores it, with its defaults."""
    return dict(_spec_of(*parts))


def _container(gpus: int) -> dict[str, Any]:
    limits = {GPU: str(gpus)} if gpus else {"cpu": "1"}
    return {"name": "train", "image": "none", "command": ["train"], "resources": {"limits": limits}}


def _path(job: Json) -> str:
    metadata = job["metadata"]
    return routes.one(names.TRAINING_JOBS, metadata["name"], namespace=metadata["namespace"])
