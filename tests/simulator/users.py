"""What users do with their jobs."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from random import Random
from typing import Any

from railwright_api import names, routes
from railwright_api.training_job import TrainingJobSpec
from simulator.api_server import ApiServer
from simulator.machines import GPU
from simulator.statuses import StatusError

Json = dict[str, Any]

NAMESPACE = "team"
NAMES = ("a", "b", "c", "d", "e", "f", "g", "h")
BACKOFFS = ((0, 300), (1, 400), (1, 86_400), (6, 86_400))
DEADLINES_S = (None, None, None, 60, 400)


class Users:
    """They create, change and delete jobs. Most have one role."""

    def __init__(self, server: ApiServer, rng: Random) -> None:
        self._server = server
        self._rng = rng
        self._names: tuple[str, ...] = NAMES
        self._steps: tuple[int, ...] = (1,)
        self._backoff = rng.choice(BACKOFFS)
        self._has_deadlines = rng.random() < 0.3
        self._drawn, self._with_roles = rng.random(), 0.0
        self.steps: dict[str, int] = {}

    def draw(self, *, names: int, steps: tuple[int, ...], with_roles: tuple[float, ...]) -> None:
        """How many names their jobs have, how many steps they may take, and how often they have
        two roles."""
        self._names, self._steps = NAMES[:names], steps
        self._with_roles = with_roles[int(self._drawn * len(with_roles))]

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
            self._patch(job, {"roles": self._spec()["roles"], "suspend": not goes_on})

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
        roles = [("worker", rng.randint(1, 4), rng.choice((1, 4, 8)))]
        if self._with_roles and rng.random() < self._with_roles:
            roles.append(("evaluator", 1, rng.choice((0, 1))))
        return _complete(
            tuple(roles), *self._backoff, rng.choice(DEADLINES_S) if self._has_deadlines else None
        )

    def _request(self, method: str, path: str, body: Any = None) -> Any:
        try:
            return self._server.request(method, path, body)
        except StatusError:
            return None


@functools.lru_cache(maxsize=512)
def _spec_of(
    roles: tuple[tuple[str, int, int], ...], backoff: int, window_s: int, deadline_s: int | None
) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "roles": [
            {
                "name": name,
                "replicas": replicas,
                **({"group": name} if at else {}),
                "template": {"spec": {"containers": [_container(gpus)]}},
            }
            for at, (name, replicas, gpus) in enumerate(roles)
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
