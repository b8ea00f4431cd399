"""How long steps take as we place ranks, and as others do: predicted, and simulated by SimGrid.

Others get the same nodes, and where more are free also the first free ones in the network's order,
as a scheduler gives that sorts by the network, and those in the fewest racks; they lay whole nodes
out by all that these send each other. Of each peer's answers the best counts, on either scale.

Where switches of some racks add up what crosses them, it is told as well what a step takes where
nobody knows of it: on the nodes that are taken then, with their switches adding up all the same.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bench import arnold, exact, flows, scotch, sharedmap, step_flows
from bench.flows import Network, Tier
from bench.step_cases import CASES, DEVICES, MACHINE, StepCase
from bench.step_flows import Phase
from fixtures.jobs import with_role
from railwright_scheduler import cluster
from railwright_scheduler.arrays import Ints
from railwright_scheduler.cluster import Cluster
from railwright_scheduler.communication.traffic_matrix import TrafficMatrix
from railwright_scheduler.cost.hardware import MACHINES, Machine
from railwright_scheduler.mapping.evaluation import OrderEvaluator
from railwright_scheduler.mapping.request import build_request
from railwright_scheduler.model.snapshot import Snapshot
from railwright_scheduler.policy.decide import decide
from railwright_testbed import requirements

SEEDS = range(3)
RANDOM = range(5)
ARNOLD_S = 20.0
LARGEST = 10_000.0
"""Others count in integers of 32 bits: what the two that exchange most do is made this."""

PEERS = ("sorted", "scotch", "sharedmap", "arnold", "exact")

Figures = dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """Whose it is, and the node (a column of the cluster) of each rank; how long a step takes."""

    whose: str
    nodes: Ints
    predicted_s: float


def compared() -> Figures:
    """All cases, and the worst ratios on either scale."""
    requirements.install_modules(flows.PACKAGE)
    found = [_case(case) for case in CASES]
    return {
        "steptime_cases": found,
        "steptime_ratio_to_best_peer": max(each["ratio_predicted"] for each in found),
        "steptime_ratio_simgrid": max(each["ratio_simgrid"] for each in found),
    }


def _case(case: StepCase) -> Figures:
    world = case.world()
    hall = cluster.of(world)
    began_s = time.process_time()
    ours = _decided(world, hall)
    took_s = time.process_time() - began_s
    orders = [*_orders(world, hall, ours)]
    figures: Figures = {"name": case.name, "nodes": case.nodes, "ours_cpu_s": round(took_s, 2)}
    if case.reducing:
        unknown = tuple(replace(each, reducing=frozenset()) for each in world.links)
        unknowing = _decided(replace(world, links=unknown), hall)
        figures["other_nodes_without_sharp"] = len({*unknowing.tolist()} - {*ours.tolist()})
        orders.append(_order("unknowing", world, hall, unknowing))
    steps_s = {
        "predicted": [each.predicted_s for each in orders],
        "simgrid": _simulated_s(case, hall, orders),
    }
    for scale, its_s in steps_s.items():
        told_s = _told_s([each.whose for each in orders], its_s)
        best_s = min(told_s[peer] for peer in PEERS if peer in told_s)
        figures[scale] = {who: round(step_s, 4) for who, step_s in told_s.items()}
        figures[f"ratio_{scale}"] = round(told_s["ours"] / best_s, 4)
    ratios = f"{figures['ratio_predicted']:.4f} {figures['ratio_simgrid']:.4f}"
    print(f"{ratios} {json.dumps(figures)}", file=sys.stderr)
    return figures


def _decided(world: Snapshot, hall: Cluster) -> Ints:
    """The nodes (columns) of the one job, in the order of its ranks."""
    (admitted,) = decide(world).admitted
    column = {node.name: at for at, node in enumerate(hall.nodes)}
    return np.array([column[name] for name in admitted.nodes])


def _told_s(whose: Sequence[str], steps_s: Sequence[float]) -> dict[str, float]:
    """The best of each one's, and what chance does on average."""
    by: dict[str, list[float]] = {}
    for who, step_s in zip(whose, steps_s, strict=True):
        by.setdefault(who, []).append(step_s)
    return {
        who: statistics.mean(its_s) if who == "random" else min(its_s) for who, its_s in by.items()
    }


def _orders(world: Snapshot, hall: Cluster, ours: Ints) -> Iterator[Order]:
    """``ours`` has nodes in the order of ranks."""
    yield _order("ours", world, hall, ours)
    free = np.flatnonzero((hall.free == hall.allocatable).all(axis=0))
    silent = replace(world, jobs=(with_role(world.jobs[0], workload=None),))
    chosen = [np.sort(ours), free[: len(ours)], np.sort(_decided(silent, hall))]
    for nodes in {each.tobytes(): each for each in chosen}.values():
        gang = _gang(world, hall, nodes)
        for whose, order in _answers(gang):
            yield Order(whose, nodes[order], gang.evaluate(order).step_us / 1e6)


def _order(whose: str, world: Snapshot, hall: Cluster, ranked: Ints) -> Order:
    nodes = np.sort(ranked)
    evaluated = _gang(world, hall, nodes).evaluate(np.searchsorted(nodes, ranked))
    return Order(whose, ranked, evaluated.step_us / 1e6)


def _gang(world: Snapshot, hall: Cluster, nodes: Ints) -> OrderEvaluator:
    return OrderEvaluator(build_request(world.jobs[0].roles[0], hall, nodes, budget=0))


def _answers(gang: OrderEvaluator) -> Iterator[tuple[str, Ints]]:
    """Orders of the gang's nodes, which are in the network's order."""
    sent, places = _counted(gang.sent), gang.places
    yield "sorted", np.arange(sent.ranks)
    rng = np.random.default_rng(0)
    for _ in RANDOM:
        yield "random", rng.permutation(sent.ranks)
    for seed in SEEDS:
        yield "scotch", scotch.mapped(sent, places, seed=seed)[0]
        if (shared := sharedmap.mapped(sent, places, seed=seed)) is not None:
            yield "sharedmap", shared
    for order in arnold.mapped(sent, places, deadline_s=ARNOLD_S):
        yield "arnold", order
    if sent.ranks <= exact.NODES_MAX:
        yield "exact", exact.mapped(sent, places)


def _counted(sent: TrafficMatrix) -> TrafficMatrix:
    weight = np.maximum(1.0, np.round(sent.weight * (LARGEST / sent.weight.max())))
    return TrafficMatrix(sent.shape, sent.a, sent.b, weight)


def _simulated_s(case: StepCase, hall: Cluster, orders: Sequence[Order]) -> list[float]:
    """Seconds of a step in each order."""
    machine = MACHINES[MACHINE]
    common = step_flows.phases(case.workload, DEVICES)
    phases = [_added_up(case, hall, each.nodes) if case.reducing else common for each in orders]
    pairs = zip(orders, phases, strict=True)
    sent = [phase.of(order.nodes) for order, its in pairs for phase in its]
    took_s = iter(flows.seconds(_network(case, hall, machine), sent))
    return [
        step_flows.step_s(case.workload, machine, {phase: next(took_s) for phase in its})
        for its in phases
    ]


def _added_up(case: StepCase, hall: Cluster, nodes: Ints) -> tuple[Phase, ...]:
    """What a group sends that stands in one of the racks with such switches is added up there."""
    racks, adds = hall.domains.of_node[-1][nodes], hall.reducing[-1]

    def is_inside(ranks: list[int]) -> bool:
        its = {*racks[ranks].tolist()}
        return len(its) == 1 and bool(adds[its.pop()])

    return step_flows.phases(case.workload, DEVICES, is_inside)


def _network(case: StepCase, hall: Cluster, machine: Machine) -> Network:
    """Uplinks of a domain carry what all of its nodes send, or one in so many of them."""
    adapters = machine.devices * machine.network.bandwidth
    tiers = []
    for depth, times in zip((2, 1), case.oversubscription, strict=True):
        paths = [node.domains[:depth] for node in hall.nodes]
        number = {path: at for at, path in enumerate(dict.fromkeys(paths))}
        domains = [number[path] for path in paths]
        uplinks = np.bincount(domains) * adapters / times
        tiers.append(Tier(tuple(domains), tuple(uplinks.tolist())))
    return Network(adapters, tuple(tiers))
