"""How long a fault in one process delays the decisions about jobs that have nothing to do with it.

On a cluster of simulated nodes where gangs train with simulated launchers, and agents report, jobs
arrive one by one, without a workload and with one, first without a fault, then while each fault
lasts. The delay of a case is
that of the job that waited longest for its attempt, beyond the slowest job without a fault. In one
case nothing fails, but a gang of 2,000 nodes is mapped and bound meanwhile. In the last case two
operators run and the leader is killed.

A fact is lost if the Fabric's status of the network or a NodeHealth differs after a case, and an
attempt ended if the status of a gang that ran before says so. Progress goes to stderr, one JSON
object to stdout; the command fails where a figure is above its bound, or the large gang is not
mapped.
"""

from __future__ import annotations

import asyncio
import functools
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from bench import bars, gang_site, isolation_faults, reporting_agents
from bench.gang_site import GangSite, Json, log_progress
from bench.isolation_faults import Fault
from bench.reporting_agents import ReportingAgents
from railwright_api import names
from railwright_testbed import waiting
from railwright_testbed.controllers_process import ControllersProcess
from railwright_testbed.operator_process import OperatorProcess
from railwright_testbed.simulated_launchers import Played, SimulatedLaunchers

RUNNING, GANG, OTHERS_NODES = 8, 4, 128
LARGE_GANG = 2_000
NODES = LARGE_GANG + OTHERS_NODES
JOBS, EVERY_S = 10, 1.0
MAPPED_NODES = 32
"""Enough that a mapping takes memory which an idle process of the mapper does not have."""

DEADLINE_S = 120.0
OTHERS_S_MAX, OPERATOR_S_MAX = 5.0, 20.0
LARGE_GANG_BOUNDS = {"mapping_seconds": 0.5, "cycle_p99_ms": 100.0, "cycle_cpu_p99_ms": 100.0}
"""Of cycles the time until the large gang is mapped, and the CPU time until it is bound: meanwhile
the API server and the simulated kubelets take most of the processors."""

DOWN_S = 600.0
PLAYED = Played(steps=1_000_000, checkpoint_interval_steps=100)
"""The training of the gangs that run: it does not end."""

OF_MAPPER = {
    "mapper killed": {"MappingFailed"},
    "mapper hung": {"MappingLate"},
    "mapper out of memory": {"MappingFailed"},
}
"""Why gangs were not mapped during its faults: without one of these there was no such fault."""

AGENTS = 32
"""Nodes with one, the last: the gangs that run are on the first."""
OF_AGENTS = ("hardware", "measuredNodes", "slow")
"""Fields of the Fabric's status that follow from their reports."""

LARGE_WORKLOAD = gang_site.WORKLOAD | {
    "parallelism": {"tensor": 8, "pipeline": 16, "data": 125},
    "training": {"sequence": 2048, "globalBatch": 2000},
}

LARGE = f"a gang of {LARGE_GANG} nodes is mapped"


def main() -> int:
    with gang_site.opened(NODES) as site:
        site.namespace("running")
        site.namespace("bench")
        site.namespace("large")
        with gang_site.controlled(site) as controllers, gang_site.operated(site) as operator:
            nodes = [gang_site.node_name(NODES - 1 - at) for at in range(AGENTS)]
            with (
                _gangs_training(site),
                reporting_agents.reporting(site, controllers, nodes) as agents,
            ):
                assert {*OF_AGENTS, *nodes} <= _facts(site).keys(), "not all reports are published"
                usual_s, _ = _slowest_s(site, "without a fault", lambda: _nothing(operator))
                faults = _faults(site, controllers, operator, agents)
                cases = [_case(site, name, usual_s, fault) for name, fault in faults.items()]
                cases.append(_large_gang(site, operator, usual_s))
                with isolation_faults.standby(site):
                    killed = functools.partial(isolation_faults.without_leader, operator)
                    cases.append(_case(site, "operator killed", usual_s, killed))
    worst_s = max(each["others_delay_seconds"] for each in cases)
    figures = {"usual_seconds": round(usual_s, 2), "cases": cases}
    bars.publish(figures | {"worst_others_delay_seconds": worst_s})
    return int(not all(map(_within_bounds, cases)))


@contextmanager
def _gangs_training(site: GangSite) -> Iterator[None]:
    """Their launchers report, and all of them do so still behind the block."""

    def train() -> bool:
        jobs = site.get(_path("running", names.TRAINING_JOBS))["items"]
        phases = [each.get("status", {}).get("phase") for each in jobs]
        return phases == ["Running"] * RUNNING

    with SimulatedLaunchers(site.plane, PLAYED, namespace="running"):
        jobs = [_job("running", number, GANG) for number in range(RUNNING)]
        asyncio.run(gang_site.apply(site, jobs))
        waiting.until(train, "gangs that train", deadline_s=DEADLINE_S)
        yield
        waiting.until(train, "gangs that train still", deadline_s=DEADLINE_S)


def _faults(
    site: GangSite,
    controllers: ControllersProcess,
    operator: OperatorProcess,
    agents: ReportingAgents,
) -> dict[str, Fault]:
    each_mapper = functools.partial(isolation_faults.each_mapper, operator)
    return {
        "mapper killed": each_mapper(isolation_faults.kill_with_request),
        "mapper hung": each_mapper(isolation_faults.hang),
        "mapper out of memory": each_mapper(isolation_faults.starve),
        "senders without tokens flooding": lambda: isolation_faults.flooded(controllers, None),
        "agents flooding": lambda: isolation_faults.flooded(controllers, agents),
        "controllers killed": lambda: isolation_faults.without(site, controllers),
        "controllers parsing a file of 30 MB": lambda: isolation_faults.parsing_file(
            site, controllers
        ),
        "controllers hung on a file of 30 MB": lambda: isolation_faults.hung_on_file(
            site, controllers
        ),
        "controllers down for 10 minutes": lambda: isolation_faults.without(
            site, controllers, seconds=DOWN_S
        ),
    }


def _large_gang(site: GangSite, operator: OperatorProcess, usual_s: float) -> Json:
    """Nothing fails, but there is a large mapping to compute, for a gang that is then bound."""
    histograms = gang_site.CYCLE, gang_site.CYCLE_CPU, gang_site.LAG
    before = {name: gang_site.buckets(operator, name) for name in histograms}
    count, seconds = _mappings(operator)

    def p99_ms(name: str) -> float:
        return gang_site.p99_ms(operator, name, since=before[name])

    def cycle_p99_ms_once_mapped() -> float:
        waiting.until(lambda: _attempts(site, "large"), "the large gang", deadline_s=DEADLINE_S)
        return p99_ms(gang_site.CYCLE)

    mapped = list[Future[float]]()
    with ThreadPoolExecutor(1) as beside:

        @contextmanager
        def arriving() -> Iterator[None]:
            job = _job("large", 0, LARGE_GANG, workload=LARGE_WORKLOAD)
            asyncio.run(gang_site.apply(site, [job]))
            mapped.append(beside.submit(cycle_p99_ms_once_mapped))
            yield

        case = _case(site, LARGE, usual_s, arriving, has_mapped=False)
    count_now, seconds_now = _mappings(operator)
    (large,) = site.get(_path("large", names.TRAINING_JOBS))["items"]
    placements = site.get(_path("large", names.PLACEMENTS))["items"]
    assert len(placements) == 1, f"it has ended: {large['status'].get('lastTermination')}"
    mapping = placements[0]["spec"].get("mapping", {})
    figures = {
        "mapped": "crossing" in mapping and "truncated" not in mapping,
        "mappings": round(count_now - count),
        "mapping_seconds": round(seconds_now - seconds, 2),
        "cycle_p99_ms": mapped[0].result(),
        "cycle_bound_p99_ms": p99_ms(gang_site.CYCLE),
        "cycle_cpu_p99_ms": p99_ms(gang_site.CYCLE_CPU),
        "loop_block_p99_ms": p99_ms(gang_site.LAG),
    }
    site.clear("large")
    return case | figures


def _mappings(operator: OperatorProcess) -> tuple[float, float]:
    """How many mappings were computed, and the seconds of all."""
    text = operator.scrape()
    found = dict(re.findall(r"^railwright_mapping_seconds_(count|sum) (\S+)$", text, re.M))
    return float(found["count"]), float(found["sum"])


def _within_bounds(case: Json) -> bool:
    bound_s = OPERATOR_S_MAX if case["fault"] == "operator killed" else OTHERS_S_MAX
    lost: int = case["facts_lost"] + case["attempts_ended"]
    is_mapped = case["fault"] != LARGE or (
        case["mapped"]
        and case["mappings"] > 0
        and all(case[name] <= bound for name, bound in LARGE_GANG_BOUNDS.items())
    )
    return bool(case["others_delay_seconds"] <= bound_s and not lost and is_mapped)


def _case(
    site: GangSite,
    name: str,
    usual_s: float,
    fault: Fault,
    *,
    has_mapped: bool = True,
) -> Json:
    facts, ended = _facts(site), _ended(site)
    slowest_s, unmapped = _slowest_s(site, name, fault, has_mapped=has_mapped)
    expected = OF_MAPPER.get(name, unmapped.keys())
    assert expected & unmapped.keys() or not expected, f"{name}: gangs unmapped: {unmapped}"
    now, after = _facts(site), _ended(site)
    return {
        "fault": name,
        "others_delay_seconds": round(max(0.0, slowest_s - usual_s), 2),
        "facts_lost": sum(now.get(key) != fact for key, fact in facts.items()),
        "gangs_unmapped": dict(unmapped),
        "attempts_ended": sum(after[name] - count for name, count in ended.items()),
    }


def _slowest_s(
    site: GangSite,
    name: str,
    fault: Fault,
    *,
    has_mapped: bool = True,
) -> tuple[float, Counter[str]]:
    """The longest from the creation of a job to its attempt, of jobs that arrive meanwhile; and how
    many of those got the network's order instead of a mapping, by the reason."""
    log_progress(name)
    waits_s = list[float]()
    with fault():
        for number in range(JOBS):
            is_mapped = has_mapped and number % 2 == 1
            job = _job("bench", number, 1)
            if is_mapped:
                job = _job("bench", number, MAPPED_NODES, workload=gang_site.WORKLOAD)
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
    mappings = [each["spec"].get("mapping", {}) for each in placements]
    unmapped = Counter(each["truncated"] for each in mappings if "truncated" in each)
    site.clear("bench")
    return max(waits_s), unmapped


def _job(namespace: str, number: int, nodes: int, *, workload: Json | None = None) -> Json:
    return gang_site.job(namespace, f"job-{number}", nodes=nodes, workload=workload)


def _path(namespace: str, plural: str) -> str:
    return f"/apis/{names.API_VERSION}/namespaces/{namespace}/{plural}"


def _attempts(site: GangSite, namespace: str) -> dict[str, int]:
    """The attempts of the jobs there that have one."""
    found = site.get(_path(namespace, names.TRAINING_JOBS))["items"]
    numbers = ((each["metadata"]["name"], each.get("status", {}).get("attempt")) for each in found)
    return {name: number for name, number in numbers if number}


def _ended(site: GangSite) -> dict[str, int]:
    """How many attempts of each gang that runs have ended."""
    found = site.get(_path("running", names.TRAINING_JOBS))["items"]
    return {each["metadata"]["name"]: each["status"].get("endedAttempt", 0) for each in found}


def _facts(site: GangSite) -> dict[str, Any]:
    """The network and the nodes in the status of the Fabric, and all NodeHealths."""
    status, healths = site.fabric(), reporting_agents.healths(site)
    kept = ("nodes", "summary", "domains", "topology", "networks", "rails", "sources")
    return {key: status[key] for key in (*kept, *OF_AGENTS) if key in status} | healths


@contextmanager
def _nothing(operator: OperatorProcess) -> Iterator[None]:
    assert operator.alive
    yield


if __name__ == "__main__":
    sys.exit(main())
