"""How long a fault in one process delays the decisions about jobs that have nothing to do with it.

On a cluster of simulated nodes where gangs run, jobs arrive one by one, without a workload and with
one, first without a fault, then while each fault lasts. The delay of a case is that of the job that
waited longest for its attempt, beyond the slowest job without a fault. In one case nothing fails,
but a gang of 2,000 nodes is mapped and bound meanwhile. In the last case two operators run and the
leader is killed.

A fact is lost if the Fabric's status of the network differs after a case, and an
attempt ended if a gang that ran before has another one. Progress goes to stderr, one JSON object to
stdout; the command fails where a figure is above its bound.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import gzip
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from bench import gang_site
from bench.gang_site import GangSite, Json, log_progress
from railwright_api import names
from railwright_testbed import waiting
from railwright_testbed.controllers_process import ControllersProcess
from railwright_testbed.operator_process import OperatorProcess
from railwright_testbed.service_process import NAMESPACE

RUNNING, GANG, OTHERS_NODES = 8, 4, 128
LARGE_GANG = 2_000
NODES = LARGE_GANG + OTHERS_NODES
JOBS, EVERY_S, MAPPED_NODES = 10, 1.0, 16
DEADLINE_S = 120.0
OTHERS_S_MAX, OPERATOR_S_MAX = 5.0, 20.0
LARGE_GANG_BOUNDS = {"mapping_seconds": 0.5, "cycle_p99_ms": 100.0}
"""The bounds while the large gang is mapped and bound."""

FAULT_EVERY_S = 0.2
FLOOD_CONNECTIONS = 64
CABLES, LONG = 27_000, "x" * 230
DOWN_S, START_TIMEOUT_S = 600.0, 86_400

WORKLOAD: Json = {
    "transformer": {
        "layers": 64,
        "hidden": 4096,
        "heads": 32,
        "feedForward": 16384,
        "vocabulary": 51200,
    },
    "parallelism": {"tensor": 8, "pipeline": 8},
    "training": {"sequence": 2048, "globalBatch": 16},
}

LARGE_WORKLOAD = WORKLOAD | {
    "parallelism": {"tensor": 8, "pipeline": 16, "data": 125},
    "training": {"sequence": 2048, "globalBatch": 2000},
}

Fault = Callable[[OperatorProcess], AbstractContextManager[None]]


def main() -> int:
    with gang_site.opened(NODES) as site:
        site.namespace("running")
        site.namespace("bench")
        site.namespace("large")
        with gang_site.controlled(site) as controllers, gang_site.operated(site) as operator:
            asyncio.run(gang_site.apply(site, [_running(at) for at in range(RUNNING)]))
            waiting.until(
                lambda: len(_attempts(site, "running")) == RUNNING, "gangs", deadline_s=DEADLINE_S
            )
            usual_s, _ = _slowest_s(site, "without a fault", lambda: _nothing(operator))
            faults: dict[str, Fault] = {
                "mapper killed": _each_mapper(lambda pid: os.kill(pid, signal.SIGKILL)),
                "mapper hung": _each_mapper(lambda pid: os.kill(pid, signal.SIGSTOP)),
                "mapper out of memory": _each_mapper(_starve),
            }
            cases = [
                _case(site, name, usual_s, functools.partial(fault, operator))
                for name, fault in faults.items()
            ]
            beside: dict[str, Callable[[], AbstractContextManager[None]]] = {
                "agents flooding": lambda: _flooded(controllers),
                "controllers killed": lambda: _without(site, controllers),
                "a file of 30 MB arrives": lambda: _large_file(site),
                "controllers down for 10 minutes": lambda: _without(
                    site, controllers, seconds=DOWN_S
                ),
            }
            cases += [_case(site, name, usual_s, fault) for name, fault in beside.items()]
            cases.append(_large_gang(site, operator, usual_s))
            with _standby(site):
                cases.append(
                    _case(site, "operator killed", usual_s, lambda: _killed(site, operator))
                )
    worst_s = max(each["others_delay_seconds"] for each in cases)
    figures = {"usual_seconds": round(usual_s, 2), "cases": cases}
    gang_site.report(figures | {"worst_others_delay_seconds": worst_s}, {})
    return int(not all(map(_within_bounds, cases)))


def _large_gang(site: GangSite, operator: OperatorProcess, usual_s: float) -> Json:
    """Nothing fails, but there is a large mapping to compute, for a gang that is then bound."""
    cycles = gang_site.buckets(operator, gang_site.CYCLE)
    lags = gang_site.buckets(operator)
    count, seconds = _mappings(operator)

    @contextmanager
    def arriving() -> Iterator[None]:
        job = _job("large", 0, LARGE_GANG, workload=LARGE_WORKLOAD)
        asyncio.run(gang_site.apply(site, [job]))
        yield

    name = f"a gang of {LARGE_GANG} nodes is mapped"
    case = _case(site, name, usual_s, arriving, has_mapped=False)
    waiting.until(lambda: _attempts(site, "large"), "the large gang", deadline_s=DEADLINE_S)
    count_now, seconds_now = _mappings(operator)
    figures = {
        "mappings": round(count_now - count),
        "mapping_seconds": round(seconds_now - seconds, 2),
        "cycle_p99_ms": gang_site.p99_ms(operator, gang_site.CYCLE, since=cycles),
        "loop_block_p99_ms": gang_site.p99_ms(operator, since=lags),
    }
    site.clear("large")
    return case | figures


def _mappings(operator: OperatorProcess) -> tuple[float, float]:
    """How many mappings were computed, and the seconds of all."""
    text = operator.probe("/metrics")[1]
    found = dict(re.findall(r"^railwright_mapping_seconds_(count|sum) (\S+)$", text, re.M))
    return float(found["count"]), float(found["sum"])


def _within_bounds(case: Json) -> bool:
    bound_s = OPERATOR_S_MAX if case["fault"] == "operator killed" else OTHERS_S_MAX
    lost: int = case["facts_lost"] + case["attempts_ended"]
    is_slow = any(case.get(name, 0) > bound for name, bound in LARGE_GANG_BOUNDS.items())
    return bool(case["others_delay_seconds"] <= bound_s and not lost and not is_slow)


def _case(
    site: GangSite,
    name: str,
    usual_s: float,
    fault: Callable[[], AbstractContextManager[None]],
    *,
    has_mapped: bool = True,
) -> Json:
    facts, attempts = _facts(site), _attempts(site, "running")
    slowest_s, unmapped = _slowest_s(site, name, fault, has_mapped=has_mapped)
    # Without one there was no fault.
    assert unmapped or not name.startswith("mapper"), f"{name}: every gang was mapped"
    now, after = _facts(site), _attempts(site, "running")
    return {
        "fault": name,
        "others_delay_seconds": round(max(0.0, slowest_s - usual_s), 2),
        "facts_lost": sum(1 for key, fact in facts.items() if now.get(key) != fact),
        "gangs_unmapped": unmapped,
        "attempts_ended": sum(1 for key, number in attempts.items() if after.get(key) != number),
    }


def _slowest_s(
    site: GangSite,
    name: str,
    fault: Callable[[], AbstractContextManager[None]],
    *,
    has_mapped: bool = True,
) -> tuple[float, int]:
    """The longest from the creation of a job to its attempt, of jobs that arrive meanwhile; and how
    many of those got the network's order instead of a mapping."""
    log_progress(name)
    waits_s = list[float]()
    with fault():
        for number in range(JOBS):
            is_mapped = has_mapped and number % 2 == 1
            job = _job("bench", number, 1)
            if is_mapped:
                job = _job("bench", number, MAPPED_NODES, workload=WORKLOAD)
            began_s = asyncio.run(gang_site.apply(site, [job]))
            waiting.until(
                lambda name=job["metadata"]["name"]: _attempts(site, "bench").get(name) == 1,  # type: ignore[misc]
                "an attempt",
                deadline_s=DEADLINE_S,
                pause_s_longest=0.05,
            )
            waits_s.append(time.monotonic() - began_s)
            time.sleep(max(0.0, EVERY_S - waits_s[-1]))
    log_progress(f"  {' '.join(f'{each:.2f}' for each in waits_s)} s")
    placements = site.get(_path("bench", names.PLACEMENTS))["items"]
    unmapped = sum(1 for each in placements if "truncated" in each["spec"].get("mapping", {}))
    site.clear("bench")
    return max(waits_s), unmapped


def _job(namespace: str, number: int, nodes: int, *, workload: Json | None = None) -> Json:
    job = gang_site.job(namespace, f"job-{number}", nodes=nodes)
    if workload is not None:
        job["spec"]["roles"][0]["processesPerReplica"] = gang_site.GPUS
        job["spec"]["workload"] = workload
    return job


def _running(number: int) -> Json:
    job = _job("running", number, GANG)
    # Simulated pods have no launcher that reports a start.
    job["spec"]["startTimeoutSeconds"] = START_TIMEOUT_S
    return job


def _path(namespace: str, plural: str) -> str:
    return f"/apis/{names.API_VERSION}/namespaces/{namespace}/{plural}"


def _attempts(site: GangSite, namespace: str) -> dict[str, int]:
    """The attempts of the jobs there that have one."""
    found = site.get(_path(namespace, names.TRAINING_JOBS))["items"]
    numbers = ((each["metadata"]["name"], each.get("status", {}).get("attempt")) for each in found)
    return {name: number for name, number in numbers if number}


def _facts(site: GangSite) -> dict[str, Any]:
    """The network and the nodes in the status of the Fabric."""
    status = site.fabric()
    kept = ("nodes", "summary", "domains", "topology", "networks", "rails", "sources", "hardware")
    return {key: status[key] for key in (*kept, "measuredNodes") if key in status}


@contextmanager
def _nothing(operator: OperatorProcess) -> Iterator[None]:
    assert operator.alive
    yield


def _each_mapper(fault: Callable[[int], None]) -> Fault:
    """The fault in every process of the mapper, again in each that replaces one."""

    @contextmanager
    def lasting(operator: OperatorProcess) -> Iterator[None]:
        over = threading.Event()

        def go_on() -> None:
            while not over.wait(FAULT_EVERY_S):
                for pid in operator.mapper_pids():
                    with contextlib.suppress(ProcessLookupError):
                        fault(pid)

        thread = threading.Thread(target=go_on)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    return lasting


def _starve(pid: int) -> None:
    _, hard = resource.prlimit(pid, resource.RLIMIT_DATA)
    resource.prlimit(pid, resource.RLIMIT_DATA, (1 << 20, hard))


@contextmanager
def _flooded(controllers: ControllersProcess) -> Iterator[None]:
    """Agents whose tokens are not valid send as fast as they can, each on a new connection."""
    command = [sys.executable, "-m", "bench.agent_flood", controllers.url, str(FLOOD_CONNECTIONS)]
    with subprocess.Popen(command) as process:
        try:
            yield
            assert process.poll() is None, "the flood ended before the jobs were decided"
        finally:
            process.kill()


@contextmanager
def _without(
    site: GangSite, controllers: ControllersProcess, *, seconds: float = 0.0
) -> Iterator[None]:
    """The controllers are killed, and start again after the block, and after as many seconds."""
    end_s, checked = time.monotonic() + seconds, _checked(site)
    controllers.stop()
    while time.monotonic() < end_s - JOBS * EVERY_S:
        time.sleep(1.0)
    yield
    controllers.start()
    waiting.until(lambda: _checked(site) > checked, "a checked Fabric", deadline_s=DEADLINE_S)


@contextmanager
def _large_file(site: GangSite) -> Iterator[None]:
    """The cables of a network of other hosts arrive, in the largest file that is read."""
    path = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
    labels = {names.LABEL_FABRIC: names.SINGLETON}
    metadata = {"name": "cables", "labels": labels}
    packed = base64.b64encode(gzip.compress(_cables(), 9)).decode()
    body = {"metadata": metadata, "binaryData": {"ibnetdiscover.txt.gz": packed}}
    site.request("POST", path, body)
    yield
    site.request("DELETE", f"{path}/cables")
    checked = _checked(site)
    waiting.until(lambda: _checked(site) > checked, "a checked Fabric", deadline_s=DEADLINE_S)


def _cables() -> bytes:
    """What ibnetdiscover prints of single cables between hosts and switches, some 30 MB. The names
    are long, so that they fit into a ConfigMap when they are compressed."""
    lines = []
    for at in range(CABLES):
        host, switch = f"h{at}{LONG} mlx5_0", f"s{at}{LONG}"
        lines += [
            f'Switch 1 "S-{at:x}" # "{switch}"',
            f'[1] "H-{at:x}"[1] # "{host}" lid 1 4xNDR',
            f'Ca 1 "H-{at:x}" # "{host}"',
            f'[1] "S-{at:x}"[1] # "{switch}" lid 1 4xNDR',
        ]
    return "\n".join(lines).encode()


def _checked(site: GangSite) -> str:
    """When the controllers last compared the sources with the Fabric."""
    return str(site.fabric().get("freshness", {}).get("checked", ""))


@contextmanager
def _standby(site: GangSite) -> Iterator[None]:
    with OperatorProcess(
        site.plane, name="standby", host="127.0.0.1", launcher_image="example.com/launcher"
    ):
        yield


@contextmanager
def _killed(site: GangSite, operator: OperatorProcess) -> Iterator[None]:
    operator.stop()
    yield
    operator.start()


if __name__ == "__main__":
    sys.exit(main())
