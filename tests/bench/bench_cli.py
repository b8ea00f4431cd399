"""How long the command line takes on a large cluster, compared with `kubectl get tj`.

5,000 simulated nodes with a pod on each, and 10,000 jobs: 1,000 that hold five nodes each, the
others wait. Their statuses are written by this benchmark, as the operator writes them. Each round
runs `kubectl get tj` and then each command as a process of its own. Progress goes to stderr, one
JSON object to stdout.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import aiohttp
import orjson

from bench import bars, gang_site
from bench.gang_site import GPU, GPUS, GangSite, Json, log_progress
from railwright_api import names
from railwright_testbed import binaries

NODES, JOBS, RUNNING = 5_000, 10_000, 1_000
ROUNDS = 20
BOUNDS = {"worst_ratio": 1.5, "peak_rss_mib": 200.0}
CONCURRENCY = 64
NAMESPACE = "bench"
LAST = "waits-08999"
COMMANDS = {
    "queue": ("queue",),
    "why": ("why", LAST),
    "info": ("info",),
    "nodes": ("nodes",),
    "status": ("status", "runs-00000"),
}
JOBS_PATH = f"/apis/{names.API_VERSION}/namespaces/{NAMESPACE}/{names.TRAINING_JOBS}"
MESSAGE = (
    "needs 16 nodes with 8 nvidia.com/gpu each; 0/5000 nodes available; best railwright.dev/rack "
    "rack-000 has 0; 5000 busy"
)


@dataclass(slots=True)
class Runs:
    """What a command took, in each round."""

    seconds: list[float] = field(default_factory=list)
    rss_mib: float = 0.0

    def p95(self) -> float:
        """The time that 95 % of the rounds stayed within."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    with gang_site.opened(given.nodes, lease_s=1_200) as site:
        # The operator alone may write statuses. The policy ends while the pods are created.
        policy = f"records.{names.GROUP}"
        site.plane.kubectl("delete", "validatingadmissionpolicybinding", policy)
        site.namespace(NAMESPACE)
        log_progress(f"{given.nodes} pods, {given.jobs} jobs")
        asyncio.run(_create(site, f"/api/v1/namespaces/{NAMESPACE}/pods", _pods(given.nodes)))
        running = given.jobs * RUNNING // JOBS
        asyncio.run(_create(site, JOBS_PATH, _jobs(running, given.jobs - running)))
        site.settle()
        runs = _measured(site, given.rounds)
    kubectl_s = runs.pop("kubectl").p95()
    figures = {name: round(each.p95(), 2) for name, each in runs.items()}
    return bars.publish(
        {
            "p95_seconds": figures,
            "kubectl_get_p95_seconds": round(kubectl_s, 2),
            "worst_ratio": round(max(each.p95() for each in runs.values()) / kubectl_s, 2),
            "peak_rss_mib": round(max(each.rss_mib for each in runs.values())),
        },
        at_most=BOUNDS,
    )


def _measured(site: GangSite, rounds: int) -> dict[str, Runs]:
    kubectl = str(binaries.find(binaries.CONTROL_PLANE)["kubectl"])
    own = [sys.executable, "-m", "railwright_cli"]
    commands = {"kubectl": [kubectl, "get", "tj", "-n", NAMESPACE]}
    for name, arguments in COMMANDS.items():
        place = [] if name in ("info", "nodes") else ["-n", NAMESPACE]
        commands[name] = [*own, *arguments, *place]
    runs = {name: Runs() for name in commands}
    for number in range(rounds):
        for name, command in commands.items():
            _run(site, command, runs[name])
        shown = ", ".join(f"{name} {each.seconds[-1]:.2f} s" for name, each in runs.items())
        log_progress(f"round {number + 1}: {shown}")
    return runs


def _run(site: GangSite, command: list[str], runs: Runs) -> None:
    environment = {**os.environ, "KUBECONFIG": str(site.plane.kubeconfig)}
    started_s = time.monotonic()
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, f"{command} ended with {process.returncode}"
    runs.seconds.append(time.monotonic() - started_s)
    runs.rss_mib = max(runs.rss_mib, usage.ru_maxrss / 1024)


def _pods(nodes: int) -> Iterable[tuple[Json, None]]:
    for number in range(nodes):
        resources = {"limits": {GPU: str(GPUS)}}
        container = {"name": "train", "image": "example.com/none", "resources": resources}
        yield (
            {
                "metadata": {
                    "name": f"runs-{number:05d}",
                    "labels": {names.LABEL_JOB_NAME: f"runs-{number // 5:05d}"},
                },
                "spec": {"nodeName": f"node-{number:05d}", "containers": [container]},
            },
            None,
        )


def _jobs(running: int, waiting: int) -> Iterable[tuple[Json, Json]]:
    for number in range(running):
        job = gang_site.job(NAMESPACE, f"runs-{number:05d}", nodes=5)
        progress = {"step": 1200, "totalSteps": 5000, "percent": "24%", "loss": "2.345"}
        yield job, _status("Running", "Running", "", nodes=5, racks=1, progress=progress)
    for number in range(waiting):
        job = gang_site.job(NAMESPACE, f"waits-{number:05d}", nodes=16)
        yield job, _status("Queued", "NotEnoughNodes", MESSAGE)


def _status(phase: str, reason: str, message: str, **more: Any) -> Json:
    now = datetime.now(UTC).isoformat()
    conditions = [
        {
            "type": name,
            "status": "False",
            "reason": reason,
            "message": message,
            "lastTransitionTime": now,
        }
        for name in ("Scheduled", "Running", "Healthy", "Checkpointed", "Suspended", "Complete")
    ]
    status = {"phase": phase, "reason": reason, "message": message, "conditions": conditions}
    return {"status": {**status, "attempt": 0, **more}}


async def _create(site: GangSite, path: str, objects: Iterable[tuple[Json, Json | None]]) -> None:
    """Create each object, and write its status."""
    slots = asyncio.Semaphore(CONCURRENCY)

    async def one(http: aiohttp.ClientSession, body: Json, status: Json | None) -> None:
        try:
            await _send(http, "POST", site.plane.url + path, body)
            if status is not None:
                url = f"{site.plane.url}{path}/{body['metadata']['name']}/status"
                await _send(http, "PATCH", url, status)
        finally:
            slots.release()

    async with site.session() as http, asyncio.TaskGroup() as tasks:
        for body, status in objects:
            await slots.acquire()
            tasks.create_task(one(http, body, status))


async def _send(http: aiohttp.ClientSession, method: str, url: str, body: Json) -> None:
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    headers = {"Content-Type": kind}
    async with http.request(method, url, data=orjson.dumps(body), headers=headers) as answer:
        assert answer.status < 300, await answer.text()


if __name__ == "__main__":
    sys.exit(main())
