"""An admission webhook that refuses pods of some jobs, and makes those of others larger."""

from __future__ import annotations

from random import Random
from typing import Any

from railwright_api import names, routes
from simulator.api_server import ApiServer
from simulator.machines import GPU
from simulator.statuses import StatusError
from simulator.users import NAMESPACE

REFUSED = "no pod of this job is let in"


class Webhook:
    """It lets in all pods as they are until a job is chosen."""

    def __init__(self, server: ApiServer, rng: Random) -> None:
        self._server = server
        self._rng = rng
        self._refused: dict[str, str] = {}
        server.admission.append(self._admit)

    def choose_job(self, verdict: str) -> str:
        """From now on pods of some job are refused, or made larger; the name of the job."""
        jobs = self._server.objects(routes.kind(names.TRAINING_JOBS))
        if not jobs:
            return ""
        name = str(self._rng.choice(jobs)["metadata"]["name"])
        self._refused[name] = verdict
        return name

    def allow(self) -> str:
        """Let in all pods as they are; the names of the jobs for which that is new."""
        found = " ".join(self._refused)
        self._refused.clear()
        return found

    def _admit(self, verb: str, path: str, found: dict[str, Any]) -> dict[str, Any]:
        if verb != "create" or not path.endswith(f"/namespaces/{NAMESPACE}/pods"):
            return found
        verdict = next(
            (
                its
                for name, its in self._refused.items()
                if found["metadata"]["name"].startswith(f"{name}-")
            ),
            "",
        )
        if verdict == "refuse":
            raise StatusError(403, "Forbidden", REFUSED)
        if verdict == "inflate":
            return _inflated(found)
        return found


def _inflated(pod: dict[str, Any]) -> dict[str, Any]:
    """The pod with twice the devices."""
    containers = []
    for each in pod["spec"]["containers"]:
        resources = {
            kind: {
                name: str(2 * int(amount)) if name == GPU else amount
                for name, amount in its.items()
            }
            for kind, its in each.get("resources", {}).items()
        }
        containers.append({**each, "resources": resources})
    return {**pod, "spec": {**pod["spec"], "containers": containers}}
