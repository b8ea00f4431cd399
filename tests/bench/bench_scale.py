"""What the operator and the controllers cost on a large cluster, and how soon the operator decides
again after a crash.

5,000 simulated nodes of 8 GPUs, 40,000 pods of others, 1,250 jobs of 8 pods that hold every GPU
but a few, some of which are mapped, and 1,000 jobs that wait. Operator and controllers are left
alone for a minute; all pods are listed in JSON and in protobuf; then the operator is killed and
started again while a job that fits is waiting: the first decision is that job's placement. The
memory of the operator is the most of both, with its mapper. Progress goes to stderr, one JSON
object to stdout.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import time
from collections.abc import Iterable
from typing import Any

import aiohttp
import orjson

from bench import bars, gang_site, list_forms
from bench.gang_site import CONTROLLERS_FLOW, FLOW, GangSite, Json, log_progress
from railwright_api import names
from railwright_testbed import waiting
from railwright_testbed.controllers_process import ControllersProcess
from railwright_testbed.operator_process import OperatorProcess
from railwright_testbed.service_process import ServiceProcess

NODES = 5_000
OTHERS_A_NODE = 8
GANG, GANG_GPUS = 8, 4
SPARE_NODES = 8
MAPPED_EVERY = 10
"""Of the jobs that run one in so many has a workload."""
WORKLOAD = gang_site.WORKLOAD | {"parallelism": {"tensor": 4, "pipeline": 4}}
QUEUED = 1_000
CONCURRENCY = 64
LEASE_S = 1_200
START_TIMEOUT_S = 86_400
IDLE_S = 60.0
QUIET_S = 10.0
SETTLED_DEADLINE_S = 1_800.0
DECIDED_DEADLINE_S = 120.0
BOUNDS = {
    "idle_writes_per_second": 1.0,
    "restart_to_first_decision_seconds": 15.0,
    "idle_loop_block_p99_ms": 100.0,
    "loop_block_p99_ms": 100.0,
    "rss_mib": 512.0,
    "controllers_rss_mib": 512.0,
}
REQUESTS = "railwright_api_requests_total"
MAPPED = 'railwright_mappings_total{outcome="Mapped"}'
WRITES = ("create", "replace", "patch", "delete")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=NODES)
    nodes = parser.parse_args().nodes
    running = (nodes - SPARE_NODES) * gang_site.GPUS // GANG_GPUS // GANG
    with gang_site.opened(nodes, lease_s=LEASE_S) as site:
        site.namespace("others")
        site.namespace("bench")
        log_progress(f"{nodes * OTHERS_A_NODE} pods of others")
        asyncio.run(_create_all(site, "/api/v1/namespaces/others/pods", _others(nodes)))
        _until_running(site, "others", nodes * OTHERS_A_NODE)
        with gang_site.controlled(site) as controllers, gang_site.operated(site) as operator:
            log_progress(f"{running} jobs that run, {QUEUED} that wait")
            asyncio.run(_create_all(site, _jobs_path(), _running(running)))
            _until_settled(site, {"Starting": running})
            _until_running(site, "bench", running * GANG)
            asyncio.run(_create_all(site, _jobs_path(), _waiting()))
            _until_settled(site, {"Starting": running, "Queued": QUEUED})
            _until_quiet(site, operator, controllers)
            idle = _idle(site, operator, controllers)
            log_progress("pods listed in JSON and in protobuf")
            forms = asyncio.run(list_forms.json_over_protobuf(site))
            mapped, mib = _mapped(operator), round(gang_site.resident_mib(operator))
            figures = idle | forms | _restarted(site, operator)
            figures |= {"mapped": mapped, "rss_mib": max(mib, figures["rss_mib"])}
            figures["controllers_rss_mib"] = round(gang_site.process_mib(controllers.pid))
        return bars.publish({"nodes": nodes, "pods": _count(site)} | figures, at_most=BOUNDS)


def _until_quiet(site: GangSite, *processes: ServiceProcess) -> None:
    """Wait until every job was told of the last of those that came after it."""

    def quiet() -> bool:
        before = _writes(site, *processes)
        _pass(QUIET_S)
        writes = _writes(site, *processes) - before
        log_progress(f"  {writes:.0f} writes in {QUIET_S:.0f} s")
        return writes <= QUIET_S

    waiting.until(quiet, "no more news", deadline_s=SETTLED_DEADLINE_S)


def _idle(
    site: GangSite, operator: OperatorProcess, controllers: ControllersProcess
) -> dict[str, float]:
    log_progress(f"idle for {IDLE_S:.0f} s")
    processes = operator, controllers
    writes, lags = _writes(site, *processes), gang_site.buckets(operator)
    before, statuses = [each.series(REQUESTS) for each in processes], _statuses(site)
    _pass(IDLE_S)
    _log_changes(statuses, _statuses(site))
    for process, counts in zip(processes, before, strict=True):
        for each, count in process.series(REQUESTS).items():
            if count != counts.get(each):
                log_progress(f"  {process!r} {count - counts.get(each, 0):.0f} {each}")
    return {
        "idle_writes_per_second": round((_writes(site, *processes) - writes) / IDLE_S, 2),
        "idle_loop_block_p99_ms": gang_site.p99_ms(operator, since=lags),
    }


def _statuses(site: GangSite) -> dict[str, Json]:
    jobs = site.get(_jobs_path())["items"]
    return {job["metadata"]["name"]: job.get("status", {}) for job in jobs}


def _log_changes(before: dict[str, Json], after: dict[str, Json]) -> None:
    """Which fields of how many statuses changed, with an example of each."""
    changes: dict[str, list[str]] = {}
    for job, status in after.items():
        for name, value in status.items():
            if value != before[job].get(name):
                changes.setdefault(name, []).append(f"{job}: {before[job].get(name)} → {value}")
    for name, found in changes.items():
        log_progress(f"  {len(found)} {name}, {found[0]}")


def _restarted(site: GangSite, operator: OperatorProcess) -> dict[str, float]:
    log_progress("killed and started again")
    operator.stop()
    # The others wait for more nodes than are free, and have a claim on these.
    urgent = {"metadata": {"name": "urgent"}, "value": 1000}
    asyncio.run(_create_all(site, "/apis/scheduling.k8s.io/v1/priorityclasses", [urgent]))
    job = gang_site.job("bench", "first", nodes=SPARE_NODES, gpus=GANG_GPUS)
    job["spec"]["priorityClassName"] = "urgent"
    asyncio.run(_create_all(site, _jobs_path(), [job]))
    started_s = time.monotonic()
    operator.start()
    waiting.until(
        lambda: site.get(f"{_jobs_path()}/first").get("status", {}).get("attempt") == 1,
        "the first decision",
        deadline_s=DECIDED_DEADLINE_S,
        pause_s_longest=0.1,
    )
    decided_s = time.monotonic() - started_s
    _pass(IDLE_S / 2)
    return {
        "restart_to_first_decision_seconds": round(decided_s, 2),
        "loop_block_p99_ms": gang_site.p99_ms(operator),
        "rss_mib": round(gang_site.resident_mib(operator)),
    }


def _pass(seconds: float) -> None:
    """Let time go by: what is measured is that nothing happens."""
    end_s = time.monotonic() + seconds
    waiting.until(lambda: time.monotonic() > end_s, "time", deadline_s=seconds + 5)


def _until_running(site: GangSite, namespace: str, pods: int) -> None:
    """Wait until the simulated kubelets have come to all of them: they take one after another."""

    def running() -> bool:
        path = f"/api/v1/namespaces/{namespace}/pods?limit=1&fieldSelector=status.phase!=Running"
        return not site.get(path)["items"]

    waiting.until(running, f"{pods} pods run", deadline_s=SETTLED_DEADLINE_S, pause_s_longest=5.0)


def _until_settled(site: GangSite, phases: dict[str, int]) -> None:
    """Wait until so many jobs are in each phase and nothing is in flight."""

    def settled() -> bool:
        found = [job.get("status", {}).get("phase") for job in site.get(_jobs_path())["items"]]
        counts = {phase: found.count(phase) for phase in phases}
        log_progress(f"  {counts}")
        return counts == phases and not site.in_flight()

    waiting.until(settled, "every job settled", deadline_s=SETTLED_DEADLINE_S, pause_s_longest=10.0)


def _writes(site: GangSite, *processes: ServiceProcess) -> float:
    """Writes so far: what the processes count, and every other request about their Leases."""
    texts = (each.scrape() for each in processes)
    found = re.findall(
        r'^railwright_api_requests_total\{.*verb="(\w+)".*\} (\S+)$', "".join(texts), re.M
    )
    counted = sum(float(count) for verb, count in found if verb in WRITES)
    return counted + site.requests(f"{FLOW}-lease", f"{CONTROLLERS_FLOW}-lease") / 2


def _mapped(operator: OperatorProcess) -> float:
    """How many gangs the mapper mapped, whose memory counts."""
    count = operator.series(MAPPED).get(MAPPED, 0.0)
    assert count, "no gang was mapped"
    return count


def _count(site: GangSite) -> int:
    return sum(len(site.pods(namespace)) for namespace in ("others", "bench"))


def _others(nodes: int) -> Iterable[Json]:
    resources = {"requests": {"cpu": "1", "memory": "4Gi"}}
    container = {"name": "main", "image": "example.com/none", "resources": resources}
    for number in range(nodes * OTHERS_A_NODE):
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"other-{number:05d}", "labels": {"app": "other"}},
            "spec": {"nodeName": f"node-{number % nodes:05d}", "containers": [container]},
        }


def _running(count: int) -> Iterable[Json]:
    for number in range(count):
        job = gang_site.job(
            "bench",
            f"running-{number:04d}",
            nodes=GANG,
            gpus=GANG_GPUS,
            workload=None if number % MAPPED_EVERY else WORKLOAD,
        )
        # Simulated pods have no launcher that reports a start, and a slow machine takes long.
        job["spec"]["startTimeoutSeconds"] = START_TIMEOUT_S
        yield job


def _waiting() -> Iterable[Json]:
    for number in range(QUEUED):
        yield gang_site.job("bench", f"waiting-{number:04d}", nodes=SPARE_NODES + 1 + number % 64)


def _jobs_path() -> str:
    return f"/apis/{names.API_VERSION}/namespaces/bench/{names.TRAINING_JOBS}"


async def _create_all(site: GangSite, path: str, objects: Iterable[Json]) -> None:
    slots = asyncio.Semaphore(CONCURRENCY)

    async def one(http: aiohttp.ClientSession, body: Any) -> None:
        headers = {"Content-Type": "application/json"}
        try:
            async with http.post(
                site.plane.url + path, data=orjson.dumps(body), headers=headers
            ) as answer:
                assert answer.status == 201, await answer.text()
        finally:
            slots.release()

    async with site.session() as http, asyncio.TaskGroup() as tasks:
        for body in objects:
            await slots.acquire()
            tasks.create_task(one(http, body))


if __name__ == "__main__":
    sys.exit(main())
