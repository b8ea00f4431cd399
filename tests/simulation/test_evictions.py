"""Pods are deleted, drained and evicted while they train, and all is blamed on what it was."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

from railwright_kube import paths
from simulator import virtual_loop
from simulator.foreign_pods import ForeignPods
from simulator.run import run
from simulator.simulated_cluster import SimulatedCluster
from simulator.virtual_loop import VirtualLoop

SEEDS = range(8)


def test_ended_pods_are_no_failures_and_all_settles() -> None:
    """Every invariant holds, also of pods that a kubelet which is away cannot end."""
    causes = Counter[str]()
    for seed in SEEDS:
        causes += Counter(run(seed, "evictions").causes)
    # So that it does happen: how often depends on every draw of a run.
    assert causes["PodEvicted"] > len(SEEDS)
    assert causes["PodDeleted"] > len(SEEDS) // 2


def test_pods_of_an_unready_node_go_with_its_kubelet() -> None:
    """They are evicted after 300 s that the node is not Ready, and go once the node is back."""
    assert virtual_loop.run(_phases_of_an_eviction, Random(0)) == ["", "Evicted", "gone"]


async def _phases_of_an_eviction(loop: VirtualLoop) -> list[str]:
    """What became of a pod of a node that is cut off: after 320 s, 400 s, and once it is back."""
    cluster, found = SimulatedCluster(loop, 0), list[str]()
    cluster.machines.add("n0", gpus=8)
    ForeignPods(cluster, Random(0)).create()
    cluster.machines.add("n1", gpus=8)
    await _reach(loop, 10)
    cluster.machines.fail("n0", is_cut=True)
    await _reach(loop, 330)
    found.append(_state(cluster))
    await _reach(loop, 410)
    found.append(_state(cluster))
    cluster.machines.restore("n0")
    await _reach(loop, 430)
    found.append(_state(cluster))
    return found


async def _reach(loop: VirtualLoop, at_s: float) -> None:
    reached: asyncio.Future[None] = loop.create_future()
    loop.call_at(at_s, reached.set_result, None)
    await reached


def _state(cluster: SimulatedCluster) -> str:
    pods = cluster.server.objects(paths.PODS)
    if not pods:
        return "gone"
    reasons = [each.get("reason") for each in pods[0]["status"]["conditions"]]
    is_evicted = "DeletionByTaintManager" in reasons and "deletionTimestamp" in pods[0]["metadata"]
    return "Evicted" if is_evicted else ""
