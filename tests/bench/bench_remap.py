"""Steps of a job as it is placed by chance, in the network's order and by us, on real links; then
after a node is replaced; and after a rack's uplinks got slow, where it stands and where we move it.

Nodes are network namespaces behind ToRs and a spine that the kernel shapes. The job is Llama 3 70B
in small steps: what its nodes would send is sent by torch.distributed in bytes of the same ratios,
and what its devices would compute is waited for, all of it slower by one factor. So the time of a
step, divided by that, is what is predicted of the job on real machines. Progress goes to stderr,
one JSON object to stdout.
"""

from __future__ import annotations

import contextlib
import json
import random
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bench import bars, small_steps
from bench.step_cases import DEVICES, MACHINE
from fixtures import shaped_network
from fixtures.jobs import with_role
from fixtures.shaped_network import ShapedNetwork, Speeds
from railwright_scheduler import cluster
from railwright_scheduler.communication import derive, traffic_matrix
from railwright_scheduler.communication.graph import Communicator
from railwright_scheduler.cost import contention, step
from railwright_scheduler.cost.hardware import MACHINES
from railwright_scheduler.model.snapshot import Snapshot
from railwright_scheduler.policy.decide import decide
from railwright_testbed import waiting
from railwright_testbed.processes import Process
from railwright_topology.links import Links

RACKS = (4, 4, 4, 4, 2, 2)
"""Free nodes of each. A ToR lets out as much as one of its adapters sends: four to one."""
RACK, SPEEDS = 4, Speeds(node=60, rack=60, block=1000)
GOODPUT = SPEEDS.node * 1e6 / 8 * 1448 / 1514
"""Bytes a second of what is sent, without the headers of Ethernet, IP and TCP."""
RATIO = RACK * SPEEDS.node / SPEEDS.rack
SLOWED = 20
"""Megabits a second of the uplinks of one rack, later."""
SLOWER = 4.0
STEPS = 3
BLIND = range(5)
REPLICAS = 8
DEADLINE_S = 1_500.0

JOB = small_steps.job(REPLICAS)
WORKLOAD, NODES = small_steps.workload(REPLICAS), JOB.num_pods


@dataclass(frozen=True, slots=True)
class Order:
    """The node of each rank, and how long a step is predicted to take."""

    whose: str
    nodes: tuple[str, ...]
    predicted_s: float


AT_LEAST = {
    "speedup_over_blind": 2.1,
    "speedup_over_default": 1.0,
    "remap_speedup_after_replacement": 1.2,
}
AT_MOST = {"prediction_mean_error": 0.2, "processor_busy": 0.7}


def main() -> int:
    with shaped_network.opened((RACKS,), SPEEDS) as network:
        site = _Site(network)
        orders = [*site.orders()]
        _log(f"{len(network.paths)} nodes in {len(RACKS)} racks; {len(orders)} orders")
        began_s, began = time.monotonic(), _processor_s()
        took = _trained(network, orders, "whole")
        slowed = [*site.slowed_orders()]
        network.slow(site.slow_rack, SLOWED)
        took += _trained(network, slowed, "slowed")
        orders += slowed
        busy = (_processor_s() - began) / (time.monotonic() - began_s) / _cores()
    measured_s: dict[str, list[float]] = {}
    errors = []
    for order, steps_s in zip(orders, took, strict=True):
        step_s = statistics.median(steps_s) / SLOWER
        measured_s.setdefault(order.whose, []).append(step_s)
        errors.append(abs(order.predicted_s / step_s - 1.0))
        _log(f"{order.whose}: {step_s:.3f} s a step, predicted {order.predicted_s:.3f}")
    mean_s = {whose: statistics.mean(each) for whose, each in measured_s.items()}
    figures = {
        "speedup_over_blind": round(mean_s["blind"] / mean_s["ours"], 3),
        "speedup_over_default": round(mean_s["default"] / mean_s["ours"], 3),
        "remap_speedup_after_replacement": round(
            mean_s["replaced by default"] / mean_s["replaced by us"], 3
        ),
        "move_speedup_after_slowdown": round(mean_s["slowed"] / mean_s["slowed, moved by us"], 3),
        "prediction_mean_error": round(statistics.mean(errors), 4),
        "prediction_max_error": round(max(errors), 4),
        "processor_busy": round(busy, 3),
        "nodes": NODES,
        "adapters_to_uplink": RATIO,
        "steps_s": {whose: round(each, 4) for whose, each in mean_s.items()},
    }
    return bars.publish(figures, at_most=AT_MOST, at_least=AT_LEAST)


class _Site:
    """The network as the scheduler knows it, and the orders of nodes that are compared on it."""

    def __init__(self, network: ShapedNetwork) -> None:
        nodes = [
            small_steps.node(name, (block, rack)) for name, (rack, block) in network.paths.items()
        ]
        self._job = JOB
        self._world = Snapshot(
            ("block", "rack"), tuple(nodes), ("default",), (self._job,), (Links(), Links(RATIO))
        )
        self._hall = cluster.of(self._world)
        self._names = [node.name for node in self._hall.nodes]
        self._ours = self._decided(self._world)
        self.slow_rack = network.paths[self._ours[0]][0]

    def orders(self) -> Iterator[Order]:
        """By chance, sorted by the network, and ours; then after the loss that hurts most if the
        first free node takes the ranks of the lost one."""
        for seed in BLIND:
            yield self._order("blind", random.Random(seed).sample(self._names, NODES))
        yield self._order("default", self._names[:NODES])
        ours = self._ours
        yield self._order("ours", ours)
        spare = min(name for name in self._names if name not in ours)
        replaced = [
            self._order("replaced by default", [spare if name == lost else name for name in ours])
            for lost in ours
        ]
        worst = max(range(NODES), key=lambda at: replaced[at].predicted_s)
        yield replaced[worst]
        lost = ours[worst]
        before = tuple("" if name == lost else name for name in ours)
        left = tuple(node for node in self._world.nodes if node.name != lost)
        again = with_role(self._job, attempt=2, before=before)
        mapped = self._decided(replace(self._world, nodes=left, jobs=(again,)))
        moved = sum(one != other for one, other in zip(before, mapped, strict=True))
        _log(f"rank {worst} is lost; we move {moved} ranks, its own among them")
        yield self._order("replaced by us", mapped)

    def slowed_orders(self) -> Iterator[Order]:
        """With the uplinks of our first rank's rack slowed: as we stand, and where we would be if
        we asked again, which is what running jobs are moved by."""
        links = (Links(), Links(RATIO, leaving={self.slow_rack: SLOWED / SPEEDS.node}))
        again = with_role(self._job, attempt=2, before=tuple(self._ours))
        slowed = replace(self._world, links=links, jobs=(again,))
        self._hall = cluster.of(slowed)
        yield self._order("slowed", self._ours)
        moved = self._decided(slowed)
        count = sum(one != other for one, other in zip(self._ours, moved, strict=True))
        _log(f"{self.slow_rack} gets slow; we move {count} ranks")
        yield self._order("slowed, moved by us", moved)

    def _decided(self, world: Snapshot) -> list[str]:
        (admitted,) = decide(world).admitted
        return [*admitted.nodes]

    def _order(self, whose: str, nodes: Sequence[str]) -> Order:
        return Order(whose, tuple(nodes), small_steps.predicted_s(self._job, self._hall, nodes))


def _trained(network: ShapedNetwork, orders: Sequence[Order], run: str) -> list[list[float]]:
    """Seconds of the steps in each order."""
    plan = network.folder.path / f"{run}.json"
    addresses = {name: network.address(name) for name in network.paths}
    plan_fields = {"orders": [order.nodes for order in orders], "addresses": addresses, **_plan()}
    plan.write_text(json.dumps(plan_fields))
    with contextlib.ExitStack() as stack:
        processes = []
        for name in network.paths:
            command = [sys.executable, "-m", "bench.waited_training", name, str(plan)]
            log = network.folder.logs / f"{run}-{name}.log"
            process = Process(
                name,
                network.in_namespace(name, *command),
                log=log,
                records=network.folder.records,
                environment={"GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"},
            )
            stack.callback(process.end)
            processes.append(process)
        found: dict[int, list[float]] = {}

        def all_reported() -> bool:
            for each in processes:
                if each.failed:
                    raise RuntimeError(each.evidence())
                for line in each.log.read_text().splitlines():
                    if line.startswith('{"order"'):
                        report = json.loads(line)
                        if report["order"] not in found:
                            _log(f"{orders[report['order']].whose}: {report['steps_s']}")
                        found[report["order"]] = report["steps_s"]
            return len(found) == len(orders)

        waiting.until(all_reported, "every order's steps", deadline_s=DEADLINE_S)
    return [found[number] for number in range(len(orders))]


def _plan() -> Mapping[str, Any]:
    """What a step is made of on each node: seconds and bytes as predicted, slowed down alike."""
    model, split, recipe = WORKLOAD.parts
    machine = MACHINES[MACHINE].of(DEVICES)
    parts = dict(step.predict(model, split, recipe, machine).parts)
    by_name = {each.name: each for each in derive.communicators(model, split, recipe)}
    between = {name: traffic_matrix.between_nodes(each, DEVICES) for name, each in by_name.items()}
    communicators = {name for name, each in between.items() if len(each.weight)}
    assert communicators == {"pipeline", "data"}, (
        f"{communicators}: the script knows pipelines and replicas"
    )
    leaving = DEVICES * machine.network.bandwidth
    """Bytes a second that a node's adapters send."""
    scale = SLOWER * GOODPUT / leaving
    count = recipe.micro_batches(split)
    ends = {"optimizer", "data", "output", "pipeline", "pipeline bubble"}
    computed_s = sum(seconds for name, seconds in parts.items() if name not in ends)
    # Half of what an adapter carries it sends, the other half it gets.
    sent_s = contention.adapters(between["data"]) / 2 / leaving
    replicas = _groups(by_name["data"])
    ring = len(replicas[0])
    summed = between["data"].weight.max() * ring / (2 * (ring - 1))
    return {
        "steps": STEPS,
        "pipelines": _groups(by_name["pipeline"]),
        "replicas": replicas,
        "micro_batch": {
            "count": count,
            "seconds": SLOWER * computed_s / count,
            "last_stage_s": SLOWER * parts["output"] / count,
            "bytes": round(scale * between["pipeline"].weight.max() / 2 / count),
        },
        "end_s": SLOWER * (parts["optimizer"] + max(0.0, parts["data"] - sent_s)),
        "summed_bytes": round(scale * summed),
    }


def _groups(communicator: Communicator) -> list[list[int]]:
    """The node ranks of each group."""
    groups = communicator.grid.groups(*communicator.axes) // DEVICES
    return [list(dict.fromkeys(group)) for group in np.unique(groups, axis=0).tolist()]


def _processor_s() -> float:
    """Seconds that all processors have been busy."""
    ticks = [int(each) for each in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return (sum(ticks[:8]) - ticks[3] - ticks[4]) / 100


def _cores() -> int:
    lines = Path("/proc/stat").read_text().splitlines()
    return sum(line.startswith("cpu") for line in lines) - 1


def _log(text: str) -> None:
    print(f"== {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
