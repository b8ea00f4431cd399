"""How much CPU a decision takes: 2,000 nodes of 8 GPUs, 1,000 queued jobs; and one huge gang.

Prints one JSON object: CPU milliseconds (best and worst of the rounds) for a cluster that is three
quarters busy, the same with node affinities, where most jobs have several roles (then a cycle
evaluates a part of the queue), and behind a gang of most nodes in segments, for an empty one, for
an empty one without topology labels, and for a gang of all nodes; and for gangs whose ranks are
mapped, each round another job, as answers are remembered, in the end beside jobs on most of the
nodes, which send all the time: what these send is remembered after the first round. The bars are
100 ms for queues of jobs of one role without affinity, and 500 ms for the mapped gang.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

from bench import bars
from fixtures.jobs import job, with_role
from railwright_scheduler.model.node_affinity import (
    NodeAffinity,
    NodeRequirement,
    NodeSelectorTerm,
    SelectorOperator,
)
from railwright_scheduler.model.snapshot import (
    Job,
    Node,
    Role,
    SendingJob,
    Snapshot,
    TierLimit,
    TopologyConstraints,
)
from railwright_scheduler.model.workload import Parallelism, Recipe, Transformer, Workload
from railwright_scheduler.policy.decide import decide
from railwright_topology.links import Links

GPU = "nvidia.com/gpu"
NODES = 2_000
JOBS = 1_000
ROUNDS = 5
RACK, BLOCK, SPINE = 8, 64, 512
LEVELS = ("spine", "block", "rack")

DENSE = Transformer(96, 12_288, 96, 96, 128, 4 * 12_288, 51_200)
MIXTURE = Transformer(40, 4096, 32, 8, 128, 1536, 128_000, gated=True, experts=128, chosen=8)

# What clusters report: most jobs are small, most GPUs in large ones. (nodes, GPUs each): weight.
MIX = {
    (1, 1): 40,
    (1, 4): 10,
    (1, 8): 20,
    (2, 8): 10,
    (4, 8): 8,
    (8, 8): 5,
    (16, 8): 3,
    (32, 8): 2,
    (64, 8): 1,
    (128, 8): 1,
}


QUEUES = ("busy", "empty", "unlabelled", "segments")
BOUNDS_MS = {f"{name}.cpu_ms": 100.0 for name in QUEUES} | {"one_gang_mapped.cpu_ms": 500.0}


def main() -> int:
    figures = {name: _measure(rounds) for name, rounds in _cases().items()}
    return bars.publish({"nodes": NODES, "jobs": JOBS} | figures, at_most=BOUNDS_MS)


def snapshots() -> Iterator[Snapshot]:
    """One of each kind that is measured."""
    return (rounds[0] for rounds in _cases().values())


def _cases() -> dict[str, list[Snapshot]]:
    return {
        "busy": [_world(busy=0.75, labelled=True, jobs=JOBS)] * ROUNDS,
        "empty": [_world(busy=0.0, labelled=True, jobs=JOBS)] * ROUNDS,
        "unlabelled": [_world(busy=0.0, labelled=False, jobs=JOBS)] * ROUNDS,
        "roles": [_with_roles(_world(busy=0.75, labelled=True, jobs=JOBS))] * ROUNDS,
        "affinity": [_with_affinity(_world(busy=0.75, labelled=True, jobs=JOBS))] * ROUNDS,
        "segments": [_behind_segments(_world(busy=0.75, labelled=True, jobs=JOBS))] * ROUNDS,
        "one_gang": [_one_gang(NODES)] * ROUNDS,
        "one_gang_ragged": [_one_gang(NODES * 3 // 4, busy=0.2)] * ROUNDS,
        "one_gang_mapped": _mapped(DENSE, Parallelism(tensor=8, pipeline=16, data=125)),
        "one_gang_mapped_ragged": _mapped(
            DENSE, Parallelism(tensor=8, pipeline=12, data=125), busy=0.2
        ),
        "one_gang_mapped_experts": _mapped(MIXTURE, Parallelism(pipeline=5, data=3200, expert=64)),
        "a_gang_mapped_by_choice": _mapped(
            DENSE, Parallelism(tensor=8, pipeline=16, data=32), busy=0.4
        ),
        "a_gang_mapped_beside_others": _beside_others(
            _mapped(DENSE, Parallelism(tensor=8, pipeline=8, data=32)), gangs=90
        ),
    }


def _measure(rounds: list[Snapshot]) -> dict[str, float | int]:
    times_ms = []
    for snapshot in rounds:
        start = time.process_time()
        decisions = decide(snapshot)
        times_ms.append(round((time.process_time() - start) * 1000, 1))
    return {
        "cpu_ms": min(times_ms),
        "cpu_ms_max": max(times_ms),
        "admitted": len(decisions.admitted),
        "waiting": len(decisions.waiting),
    }


def _world(*, busy: float, labelled: bool, jobs: int) -> Snapshot:
    rng = random.Random(7)
    queue = []
    for number in range(jobs):
        nodes, gpus = rng.choices(list(MIX), weights=list(MIX.values()))[0]
        queue.append(_job(number, nodes, gpus, rng))
    return Snapshot(
        levels=LEVELS,
        nodes=tuple(_node(i, busy, labelled, rng) for i in range(NODES)),
        queues=("default",),
        jobs=tuple(queue),
    )


def _with_affinity(world: Snapshot) -> Snapshot:
    """The same with a node affinity in every job, one of twelve."""
    affinities = [
        NodeAffinity(
            (
                NodeSelectorTerm(
                    (NodeRequirement("kind", SelectorOperator.NOT_IN, frozenset({kind})),),
                    (NodeRequirement("name", SelectorOperator.NOT_IN, frozenset({node.name})),),
                ),
            )
        )
        for kind in ("h100", "a100")
        for node in world.nodes[:6]
    ]
    jobs = (
        with_role(job, affinity=affinities[number % len(affinities)])
        for number, job in enumerate(world.jobs)
    )
    return replace(world, jobs=tuple(jobs))


def _with_roles(world: Snapshot) -> Snapshot:
    """The same with an evaluator in most jobs, and parameter servers in some of these."""
    rng, jobs = random.Random(7), []
    for each in world.jobs:
        (worker,) = each.roles
        roles = [replace(worker, name="worker")]
        if rng.random() < 0.8:
            per_pod = {"cpu": rng.choice((4_000, 16_000)), "memory": 2**34, "pods": 1}
            roles.append(Role(1, per_pod, name="evaluator"))
            if rng.random() < 0.4:
                per_pod = {"cpu": 8_000, "memory": 2**35, "pods": 1}
                roles.append(Role(rng.choice((1, 2, 4)), per_pod, name="server"))
        jobs.append(replace(each, roles=tuple(roles)))
    return replace(world, jobs=tuple(jobs))


def _behind_segments(world: Snapshot) -> Snapshot:
    """The same behind a gang of most nodes, in segments within blocks."""
    segments = TopologyConstraints(segments=(TierLimit("rack", 2), TierLimit("block", 4)))
    gang = _job(JOBS, NODES * 4 // 5, 8, random.Random(7))
    gang = with_role(gang, priority=100, selector={}, constraints=segments)
    return replace(world, jobs=(gang, *world.jobs))


def _one_gang(nodes: int, busy: float = 0.0) -> Snapshot:
    rng = random.Random(7)
    return Snapshot(
        levels=LEVELS,
        nodes=tuple(_node(i, busy, True, rng) for i in range(NODES)),
        queues=("default",),
        jobs=(_job(0, nodes, 8, rng),),
    )


def _mapped(model: Transformer, split: Parallelism, *, busy: float = 0.0) -> list[Snapshot]:
    """A gang that says what it does, on a network with half and a quarter of the uplinks."""
    found = []
    for number in range(ROUNDS):
        recipe = Recipe(2048 + 128 * number, 1, 16 * split.data, sequence_parallel=True)
        bare = _one_gang(split.ranks // 8, busy)
        job = with_role(bare.jobs[0], ranks_per_pod=8, workload=Workload(model, split, recipe))
        nodes = tuple(replace(node, machine="DGX A100") for node in bare.nodes)
        found.append(
            replace(bare, jobs=(job,), nodes=nodes, links=(Links(4.0), Links(2.0), Links()))
        )
    return found


def _beside_others(rounds: list[Snapshot], *, gangs: int) -> list[Snapshot]:
    """The same while so many gangs of 16 nodes run, each across two racks."""
    size, split = 2 * RACK, Parallelism(tensor=8, pipeline=2, data=RACK)
    names = [node.name for node in rounds[0].nodes]
    running = tuple(
        SendingJob(
            Workload(DENSE, split, Recipe(2048 + number, 1, 2 * RACK, sequence_parallel=True)),
            8,
            tuple(names[number * size : (number + 1) * size]),
        )
        for number in range(gangs)
    )
    taken = {name for each in running for name in each.nodes}
    return [
        replace(
            world,
            senders=running,
            nodes=tuple(
                replace(node, used=node.allocatable) if node.name in taken else node
                for node in world.nodes
            ),
        )
        for world in rounds
    ]


def _node(number: int, busy: float, labelled: bool, rng: random.Random) -> Node:
    gpus = rng.choice((8, 8, 8, 4, 1)) if rng.random() < busy else 0
    path = (f"s{number // SPINE}", f"b{number // BLOCK}", f"r{number // RACK}")
    return Node(
        name=f"node-{number:05d}",
        domains=path if labelled else ("", "", ""),
        allocatable={GPU: 8, "cpu": 128_000, "memory": 2**41, "pods": 110},
        used={GPU: gpus, "cpu": 12_000 * gpus, "memory": gpus * 2**37, "pods": gpus + 5},
        labels={"kind": "h100" if number % 2 else "h200"},
    )


def _job(number: int, nodes: int, gpus: int, rng: random.Random) -> Job:
    return job(
        uid=f"job-{number}",
        namespace=f"team-{number % 7}",
        name=f"job-{number}",
        queue="default",
        priority=rng.choice((0, 0, 0, 1, 2)),
        submitted_s=rng.randrange(1_000_000),
        attempt=1,
        replicas=nodes,
        per_pod={GPU: gpus, "cpu": 12_000 * gpus, "memory": gpus * 2**37, "pods": 1},
        selector={"kind": rng.choice(("h100", "h200"))} if rng.random() < 0.1 else {},
    )


if __name__ == "__main__":
    sys.exit(main())
