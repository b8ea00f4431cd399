"""How fast gangs run, against a plain client that creates and binds the same pods.

1,024 simulated nodes of 8 GPUs, 16 in a rack, 8 racks in a block. W1: 64 jobs of 16 pods at once;
W2: one job of 512. The clock runs from the first apply until an independent watcher has seen all
pods Running. The plain client opens its connections before. It and the product take turns, the
plain client at the best of four concurrencies; each figure is a median of the rounds, a ratio that
of the ratios of each round, as a shared machine is faster in one minute than in the next. Each run
starts on a machine at rest. Both have run before the first round: the plain client once at each
concurrency, the product once, whose time is ``first_seconds``. Progress goes to stderr, one JSON
object to stdout.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import itertools
import statistics
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from bench import bars, gang_site, raw_client
from bench.gang_site import FLOW, GPU, GPUS, RACK_NODES, GangSite, Json, log_progress
from railwright_api import names
from railwright_operator.write import rendering
from railwright_scheduler.attempt.ledger import Entry, EntryRole, EntryState
from railwright_testbed.operator_process import OperatorProcess

NODES = 1024
LEASE_S = 7200
"""Kubelets renew their leases each quarter of it: 1,024 in one burst, which would fall on the plain
client or on the product by chance."""
BOUNDS = {"w1_ratio": 1.2, "w2_ratio": 1.2, "overcommitted_nodes": 0}
CONCURRENCIES = (16, 32, 64, 128)
LAUNCHER = rendering.Launcher("example.com/launcher", "http://127.0.0.1:8470")

# No name comes twice: simulated kubelets delete by name, and some late.
_runs = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Workload:
    """So many jobs of so many pods."""

    name: str
    jobs: int
    pods_each: int

    @property
    def pods(self) -> int:
        return self.jobs * self.pods_each


W1 = Workload("w1", 64, 16)
W2 = Workload("w2", 1, 512)


@dataclass(slots=True)
class Results:
    """Seconds of every run, and what else was seen of the product's."""

    raw_s: dict[str, list[float]] = field(default_factory=lambda: collections.defaultdict(list))
    ours_s: dict[str, list[float]] = field(default_factory=lambda: collections.defaultdict(list))
    requests_per_pod: list[float] = field(default_factory=list)
    operator_cpu_s: dict[str, list[float]] = field(
        default_factory=lambda: collections.defaultdict(list)
    )
    first_s: dict[str, float] = field(default_factory=dict)
    racks_w1: list[int] = field(default_factory=list)
    overcommitted: int = 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--nodes", type=int, default=NODES)
    chosen = parser.parse_args()
    results = Results()
    with (
        gang_site.opened(chosen.nodes, lease_s=LEASE_S) as site,
        gang_site.controlled(site),
        gang_site.operated(site) as operator,
    ):
        site.namespace("bench")
        for workload in (W1, W2):
            concurrency = _best_concurrency(site, workload)
            results.first_s[workload.name] = _ours(site, workload, operator, results)
            log_progress(f"{workload.name} first: ours {results.first_s[workload.name]:.2f} s")
            for number in range(chosen.rounds):
                raw_s = _raw(site, workload, concurrency)
                ours_s = _ours(site, workload, operator, results)
                results.raw_s[workload.name].append(raw_s)
                results.ours_s[workload.name].append(ours_s)
                log_progress(
                    f"{workload.name} round {number + 1}: raw {raw_s:.2f} s, ours {ours_s:.2f} s"
                )
        return bars.publish(_figures(results, operator), at_most=BOUNDS)


def _best_concurrency(site: GangSite, workload: Workload) -> int:
    times = {each: _raw(site, workload, each) for each in CONCURRENCIES}
    log_progress(f"{workload.name} raw by concurrency: {times}")
    return min(times, key=times.__getitem__)


def _raw(site: GangSite, workload: Workload, concurrency: int) -> float:
    prefix = f"raw{next(_runs)}"
    planned = [
        (_pod(workload, number, prefix), f"node-{number:05d}") for number in range(workload.pods)
    ]

    async def run() -> float:
        async with site.session() as http:
            await raw_client.connect(http, site.plane.url, connections=concurrency)
            started_s = time.monotonic()
            await raw_client.create_and_bind(http, site.plane.url, planned, concurrency=concurrency)
            return started_s

    site.settle()
    with site.watched("bench", workload.pods) as watcher:
        started_s = asyncio.run(run())
        took_s = watcher.all_running_s() - started_s
    site.clear("bench")
    return took_s


def _ours(site: GangSite, workload: Workload, operator: OperatorProcess, results: Results) -> float:
    prefix = f"run{next(_runs)}"
    jobs = [
        gang_site.job("bench", f"{prefix}-{number:02d}", nodes=workload.pods_each)
        for number in range(workload.jobs)
    ]
    flows = (FLOW, f"{FLOW}-lease")
    site.settle()
    requests, cpu_s = site.requests(*flows), gang_site.cpu_s(operator.pid)
    with site.watched("bench", workload.pods) as watcher:
        started_s = asyncio.run(gang_site.apply(site, jobs))
        took_s = watcher.all_running_s() - started_s
    results.requests_per_pod.append((site.requests(*flows) - requests) / workload.pods)
    results.operator_cpu_s[workload.name].append(gang_site.cpu_s(operator.pid) - cpu_s)
    found = site.pods("bench")
    if workload is W1:
        results.racks_w1.extend(_racks(found))
    results.overcommitted += _overcommitted(found)
    site.clear("bench")
    return took_s


def _pod(workload: Workload, number: int, prefix: str) -> Json:
    """The pod that the product would make, but for two things: an owner that is not there would
    have it collected, and labels of ours are the operator's alone to set."""
    name = f"{prefix}-{number // workload.pods_each:02d}"
    entry = Entry(
        job_uid="00000000-0000-0000-0000-000000000000",
        namespace="bench",
        job_name=name,
        attempt=1,
        state=EntryState.COMMITTING,
        nodes=("",) * workload.pods_each,
        roles=(EntryRole("worker", workload.pods_each, {}),),
    )
    job = gang_site.job("bench", name, nodes=workload.pods_each)
    pod = dict(
        rendering.render_pod(job, entry, node_rank=number % workload.pods_each, launcher=LAUNCHER)
    )
    metadata = {key: value for key, value in pod["metadata"].items() if key != "ownerReferences"}
    labels = {
        key.replace(names.GROUP, "example.com"): value for key, value in metadata["labels"].items()
    }
    return pod | {"metadata": metadata | {"labels": labels}}


def _racks(found: list[Json]) -> list[int]:
    by_gang: dict[str, set[int]] = collections.defaultdict(set)
    for pod in found:
        number = int(pod["spec"]["nodeName"].rpartition("-")[2])
        by_gang[pod["metadata"]["labels"][names.LABEL_JOB_NAME]].add(number // RACK_NODES)
    return [len(racks) for racks in by_gang.values()]


def _overcommitted(found: list[Json]) -> int:
    used: collections.Counter[str] = collections.Counter()
    for pod in found:
        for container in pod["spec"]["containers"]:
            used[pod["spec"]["nodeName"]] += int(container["resources"]["requests"].get(GPU, 0))
    return sum(amount > GPUS for amount in used.values())


def _figures(results: Results, operator: OperatorProcess) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for name, raw_s in results.raw_s.items():
        ours_s = results.ours_s[name]
        ratios = [ours / raw for ours, raw in zip(ours_s, raw_s, strict=True)]
        figures |= {
            f"{name}_first_seconds": round(results.first_s[name], 2),
            f"{name}_seconds": round(statistics.median(ours_s), 2),
            f"{name}_raw_seconds": round(statistics.median(raw_s), 2),
            f"{name}_ratio": round(statistics.median(ratios), 3),
            f"{name}_ratios": sorted(round(ratio, 3) for ratio in ratios),
            f"{name}_operator_cpu_seconds": round(
                statistics.median(results.operator_cpu_s[name]), 2
            ),
        }
    racks = results.racks_w1
    return figures | {
        "requests_per_pod": round(max(results.requests_per_pod), 2),
        "racks_per_gang_w1": round(statistics.mean(racks), 3),
        "single_rack_gangs_w1": sum(count == 1 for count in racks) * W1.jobs // len(racks),
        "overcommitted_nodes": results.overcommitted,
        "operator_rss_mib": round(gang_site.resident_mib(operator)),
        "loop_block_p99_ms": gang_site.p99_ms(operator),
    }


if __name__ == "__main__":
    sys.exit(main())
