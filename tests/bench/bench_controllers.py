"""What the controllers cost on a large cluster whose nodes all have an agent, and how soon a rack
label that changed is in a decision.

5,000 simulated nodes. The agent of each reports one of a few drawn machines with measured speeds,
paced as real agents. Once all is published, the controllers are left alone for a minute. Then a job
waits for a rack of one node more than its rack has, and a node of another one gets that label, ten
times. Then the controllers are killed and started again: a fact is lost if a NodeHealth or the
network in the Fabric differs from then until all agents have reported again. Progress goes to
stderr, one JSON object to stdout.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from bench import bars, gang_site, reporting_agents
from bench.gang_site import RACK_NODES, GangSite, Json, log_progress
from fixtures import machine_files, machines
from railwright_agent import hardware
from railwright_agent.hardware import HardwareSources
from railwright_api import names
from railwright_kube.paths import NODES as NODES_PATH
from railwright_testbed import waiting
from railwright_testbed.controllers_process import ControllersProcess
from railwright_topology.parts import DeviceBenchmark, Kind
from railwright_topology.sources.hardware_documents import Document

NODES = 5_000
MACHINES, SEED = 8, 20261129
SLOW_EVERY = 500
"""Of so many nodes one has a slow device."""
RELABELS = 10
IDLE_S = 60.0
PUBLISHED_S, CAUGHT_UP_S, DECIDED_S = 900.0, 600.0, 60.0
BOUNDS = {
    "controllers_rss_mib": 512.0,
    "relabelled_to_decision_seconds": 5.0,
    "idle_writes_per_second": 1.0,
    "fabric_kib": 1024.0,
    "facts_lost": 0.0,
}
FACTS = ("nodes", "summary", "domains", "topology", "hardware", "rails", "measuredNodes", "slow")
TAKEN = 'railwright_agent_requests_total{code="200"'
REQUESTS, WRITES = "railwright_api_requests_total", ("create", "replace", "patch", "delete")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=NODES)
    count = parser.parse_args().nodes
    with gang_site.opened(count) as site:
        site.namespace("bench")
        with gang_site.controlled(site) as controllers, gang_site.operated(site):
            began_s = time.monotonic()
            with _reporting(site, controllers, count):
                _until_published(site, controllers, count)
                figures: Json = {
                    "nodes": count,
                    "published_seconds": round(time.monotonic() - began_s),
                    "fabric_kib": round(len(json.dumps(site.fabric())) / 1024),
                }
                figures |= _idle(controllers)
                figures["relabelled_to_decision_seconds"] = _relabelled_s(site)
                before_mib = gang_site.process_mib(controllers.pid)
                figures["facts_lost"] = _lost_at_restart(site, controllers, count)
                after_mib = gang_site.process_mib(controllers.pid)
                figures["controllers_rss_mib"] = round(max(before_mib, after_mib))
        return bars.publish(figures, at_most=BOUNDS)


@contextmanager
def _reporting(site: GangSite, controllers: ControllersProcess, count: int) -> Iterator[None]:
    """The agents of all nodes, as long as the block lasts."""
    with tempfile.TemporaryDirectory() as folder:
        log_progress(f"tokens of {count} agents")
        kinds, rng = _machines(Path(folder)), Random(SEED)
        documents = {
            gang_site.node_name(at): _measured(kinds[at % len(kinds)], at, rng)
            for at in range(count)
        }
        messages = reporting_agents.write_messages(site, controllers, documents, Path(folder))
        command = [sys.executable, "-m", "bench.agent_fleet", controllers.url, str(messages)]
        with subprocess.Popen([*command, str(SEED)]) as fleet:
            try:
                yield
                assert fleet.poll() is None, "the agents ended"
            finally:
                fleet.kill()


def _machines(folder: Path) -> list[Document]:
    """What the agents of some drawn machines read there."""
    rng = Random(SEED)
    found = []
    for number in range(MACHINES):
        root = folder / str(number)
        machine_files.write_sysfs(root, machine_files.sysfs(machines.planted(rng)))
        found.append(hardware.gather(HardwareSources(root)))
    return found


def _measured(machine: Document, number: int, rng: Random) -> Document:
    """The same with speeds of its accelerators, which differ by up to one percent but for a slow
    one on some nodes."""
    parts = {part.pci: part for report in machine.hardware_reports for part in report.parts}
    accelerators = sorted(pci for pci, part in parts.items() if part.kind is Kind.ACCELERATOR)
    speeds = [round(660e12 * rng.uniform(0.995, 1.005)) for _ in accelerators]
    if number % SLOW_EVERY == 0:
        speeds[0] //= 2
    measured = [
        DeviceBenchmark(pci, "H100", "torch 9.9", speed, 29 * 10**11)
        for pci, speed in zip(accelerators, speeds, strict=True)
    ]
    return replace(machine, benchmarks=tuple(measured))


def _until_published(site: GangSite, controllers: ControllersProcess, count: int) -> None:
    """Wait until each agent has reported and each node has its NodeHealth."""

    def published() -> bool:
        healths = len(reporting_agents.healths(site))
        taken = sum(controllers.series(TAKEN).values())
        log_progress(f"  {taken:.0f} reports taken, {healths} NodeHealths, {_reported(site)}")
        return healths == count and _reported(site) == count

    waiting.until(published, "all is published", deadline_s=PUBLISHED_S, pause_s_longest=10.0)


def _reported(site: GangSite) -> int:
    """The agents that the Fabric counts."""
    return int(site.fabric().get("agents", {}).get("nodes", 0))


def _idle(controllers: ControllersProcess) -> dict[str, float]:
    """The writes and the CPU of the controllers while reports arrive that change nothing."""
    log_progress(f"idle for {IDLE_S:.0f} s")
    writes, used_s = _writes(controllers), gang_site.cpu_s(controllers.pid)
    end_s = time.monotonic() + IDLE_S
    waiting.until(lambda: time.monotonic() > end_s, "time", deadline_s=IDLE_S + 5)
    return {
        "idle_writes_per_second": round((_writes(controllers) - writes) / IDLE_S, 2),
        "idle_cpu_share": round((gang_site.cpu_s(controllers.pid) - used_s) / IDLE_S, 2),
    }


def _writes(controllers: ControllersProcess) -> float:
    found = controllers.series(REQUESTS).items()
    return sum(n for series, n in found if any(f'verb="{verb}"' in series for verb in WRITES))


def _relabelled_s(site: GangSite) -> float:
    """The longest time from the response to a change of a label until a job that waited for it has
    its attempt."""
    path = f"/apis/{names.API_VERSION}/namespaces/bench/{names.TRAINING_JOBS}"
    node = gang_site.node_name(RACK_NODES)
    rack = site.get(f"{NODES_PATH}/{node}")["metadata"]["labels"][names.LABEL_RACK]
    topology, waits_s = site.fabric()["topology"], list[float]()
    for number in range(RELABELS):
        job = gang_site.job("bench", f"job-{number}", nodes=RACK_NODES + 1)
        job["spec"]["topology"] = {"required": names.LABEL_RACK}
        site.request("POST", path, job)
        one = f"{path}/job-{number}"
        waiting.until(
            lambda one=one: _status(site, one).get("reason") == "NeverFits",  # type: ignore[misc]
            "a job that waits for its rack",
            deadline_s=DECIDED_S,
        )
        _label(site, node, "rack-000")
        began_s = time.monotonic()
        waiting.until(
            lambda one=one: _status(site, one).get("attempt") == 1,  # type: ignore[misc]
            "an attempt",
            deadline_s=DECIDED_S,
            pause_s_longest=0.05,
        )
        waits_s.append(time.monotonic() - began_s)
        site.clear("bench")
        _label(site, node, rack)
        waiting.until(
            lambda: site.fabric()["topology"] == topology, "the old racks", deadline_s=DECIDED_S
        )
    log_progress(f"  {' '.join(f'{each:.2f}' for each in waits_s)} s")
    return round(max(waits_s), 2)


def _label(site: GangSite, node: str, rack: str) -> None:
    with closing(site.plane.client()) as admin:
        admin.patch(f"{NODES_PATH}/{node}", {"metadata": {"labels": {names.LABEL_RACK: rack}}})


def _status(site: GangSite, path: str) -> Json:
    found: Json = site.get(path).get("status", {})
    return found


def _lost_at_restart(site: GangSite, controllers: ControllersProcess, count: int) -> int:
    """The facts that differed at any look until all agents had reported to the new process."""
    log_progress("controllers killed and started again")
    before, lost = _facts(site), set[str]()
    controllers.stop()
    controllers.start()
    taken = sum(controllers.series(TAKEN).values())

    def caught_up() -> bool:
        now = _facts(site)
        lost.update(key for key, fact in before.items() if now.get(key) != fact)
        reports = sum(controllers.series(TAKEN).values()) - taken
        log_progress(f"  {reports:.0f} reports taken, {len(lost)} facts lost")
        return reports >= count and _reported(site) == count

    waiting.until(caught_up, "all agents report", deadline_s=CAUGHT_UP_S, pause_s_longest=10.0)
    return len(lost)


def _facts(site: GangSite) -> dict[str, Any]:
    """The network in the Fabric, and all NodeHealths."""
    status = site.fabric()
    found = {key: status[key] for key in FACTS if key in status}
    return found | reporting_agents.healths(site)


if __name__ == "__main__":
    sys.exit(main())
