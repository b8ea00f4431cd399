"""Workloads at and near the bounds of their schema, on clusters of several shapes.

Drawn from a seeded source, validated by the API's own model: what comes out is what a user can
apply. Used to find what planning costs at most.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from railwright_api import workload as api
from railwright_reading import workloads
from railwright_scheduler import Job, Node, Snapshot
from railwright_scheduler.snapshot import Terms
from railwright_scheduler.workload import Workload
from railwright_topology.accounts import ISLAND
from railwright_topology.links import Links
from railwright_topology.pace import Pace
from worlds import seen
from worlds.jobs import GPU

MACHINES = ("DGX A100", "DGX H100", "")
PROFILED_RANKS = 1_024


def workload(rng: random.Random, nodes: int, per_node: int) -> Workload:
    """A valid one of so many ranks."""
    while True:
        try:
            found = workloads.workload(api.Workload.model_validate(fields(rng, nodes * per_node)))
        except (ValidationError, ValueError):
            continue
        if found.split.ranks <= PROFILED_RANKS and not found.split.servers and rng.random() < 0.3:
            found = replace(found, profile=seen.profile(found))
        return found


def fields(rng: random.Random, ranks: int) -> dict[str, Any]:
    """``spec.workload`` of so many ranks, mostly valid."""
    servers = rng.choice([0] * 6 + [1, ranks // 2, ranks - 1, rng.randint(0, ranks - 1)])
    computing = ranks - servers
    tensor, context, pipeline, data = _factors(rng, computing, 4)
    expert = rng.choice([*_divisors(tensor * context * data)]) if rng.random() < 0.6 else 1
    replicas = rng.choice([*_divisors(data)]) if rng.random() < 0.4 else 1
    experts = expert * _upto(rng, max(1, api.EXPERTS_MAX // expert)) if rng.random() < 0.6 else 0
    heads = tensor * context * _upto(rng, 64)
    virtual = _upto(rng, 1 << 20)
    method = {
        "sequence": context * _upto(rng, 1 << 20),
        "microBatch": (micro := _upto(rng, 64)),
        "globalBatch": micro * data * _upto(rng, 1 << 16),
        "precision": rng.choice(["bf16", "fp16", "fp8", "fp32"]),
        "recompute": rng.choice(["none", "attention", "layers"]),
        "context": rng.choice(["ring", "ulysses"]),
        "sharding": rng.choice(["none", "optimizer", "gradients", "parameters"]),
        "optimizer": rng.choice(["device", "host", "disk"]),
        "framework": rng.choice(["megatron", "megatron-pipeline-first", "deepspeed", "torch"]),
    }
    flags = "fusedAttention sequenceParallel fusedLoss overlap overlapTensor overlapExperts"
    for flag in [*flags.split(), "forwarded"]:
        method[flag] = rng.random() < 0.5
    return {
        "model": {
            "layers": pipeline * virtual * _upto(rng, 1 << 10),
            "hidden": heads * _upto(rng, 1 << 10),
            "heads": heads,
            "headSize": _upto(rng, 1 << 10),
            "feedForward": tensor * _upto(rng, 1 << 20),
            "vocabulary": _upto(rng, 1 << 40),
            "gated": rng.random() < 0.5,
            "biased": rng.random() < 0.5,
            "tied": rng.random() < 0.5,
            "experts": experts,
            "expertsPerToken": min(experts, _upto(rng, 16_384)),
            "nodesPerToken": rng.choice([0, 0, 1, _upto(rng, 16_384)]),
        },
        "parallelism": {
            "tensor": tensor,
            "context": context,
            "pipeline": pipeline,
            "stagesPerRank": virtual,
            "data": data,
            "expert": expert,
            "replicas": replicas,
            "servers": servers,
        },
        "training": method,
    }


def _upto(rng: random.Random, most: int) -> int:
    """Of any size, and often the largest."""
    if rng.random() < 0.2:
        return most
    return max(1, min(most, int(2 ** rng.uniform(0, math.log2(most) if most > 1 else 0))))


def _factors(rng: random.Random, whole: int, count: int) -> list[int]:
    """So many that multiply to the whole, in any order: all of it in one, now and then."""
    found = [1] * count
    for prime in _primes(whole):
        found[rng.randrange(count) if rng.random() < 0.7 else 0] *= prime
    rng.shuffle(found)
    return found


def _primes(whole: int) -> list[int]:
    found, prime = [], 2
    while whole > 1:
        while whole % prime == 0:
            found.append(prime)
            whole //= prime
        prime = prime + 1 if prime * prime <= whole else whole
    return found


def _divisors(whole: int) -> list[int]:
    found = [1]
    for prime, times in itertools.groupby(_primes(whole)):
        count = len([*times])
        found = [each * prime**power for each in found for power in range(count + 1)]
    return sorted(found)


SHAPES = ("one_rack", "three_racks", "irregular", "four_tiers", "islands", "alone")


def cluster(rng: random.Random, shape: str, nodes: int) -> Snapshot:
    """So many idle nodes, with narrow uplinks, some of them slow or of another kind."""
    levels, paths = _paths(rng, shape, nodes)
    machines = [rng.choice(MACHINES[:2])] * nodes
    mixed = rng.random()
    if mixed < 0.2:
        machines = [rng.choice(MACHINES[:2]) for _ in range(nodes)]
    elif mixed < 0.3:
        machines = [""] * nodes
    paces = [Pace()] * nodes
    if rng.random() < 0.4:
        kinds = rng.choice([2, 8, 40, 400])
        drawn = [Pace(0.05 * rng.randint(4, 20), 0.05 * rng.randint(4, 20)) for _ in range(kinds)]
        paces = [rng.choice(drawn) if rng.random() < 0.3 else Pace() for _ in range(nodes)]
    return Snapshot(
        levels=levels,
        nodes=tuple(
            Node(f"n{at:05}", path, {GPU: 64}, {}, machine=machine, pace=pace)
            for at, (path, machine, pace) in enumerate(zip(paths, machines, paces, strict=True))
        ),
        queues=("default",),
        jobs=(),
        links=tuple(Links(rng.choice([1.0, 2.0, 4.0, 8.0])) for _ in levels),
    )


def _paths(
    rng: random.Random, shape: str, nodes: int
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    each = range(nodes)
    match shape:
        case "one_rack":
            return ("rack",), [("r",)] * nodes
        case "three_racks":
            return ("rack",), [(f"r{at % 3}",) for at in each]
        case "irregular":
            ends = sorted(rng.sample(each, max(1, nodes // 11)))
            racks = [0 for _ in each]
            rack = 0
            for at in each:
                rack += rack < len(ends) and at >= ends[rack]
                racks[at] = rack
            return ("block", "rack"), [(f"b{its // 13}", f"r{its}") for its in racks]
        case "four_tiers":
            return (
                ("spine", "block", "row", "rack"),
                [(f"s{at // 512}", f"b{at // 64}", f"w{at // 16}", f"r{at // 4}") for at in each],
            )
        case "islands":
            return (
                ("block", "rack", ISLAND),
                [(f"b{at // 72}", f"r{at // 18}", f"i{at // 9}") for at in each],
            )
    return ("block", "rack"), [(f"b{at // 40}", f"r{at}") for at in each]


def job(rng: random.Random, floor: Snapshot, nodes: int) -> Job:
    """A gang of so many of its nodes that says what it does."""
    per_node = rng.choice([1, 2, 4, 8, 8, 8, 64, rng.randint(1, 64)])
    terms = Terms()
    if rng.random() < 0.15:
        terms = Terms(spread=rng.choice([1, 2, nodes]), spread_tier=floor.levels[-1])
    before: Sequence[str] = ()
    if rng.random() < 0.3:
        before = rng.sample([node.name for node in floor.nodes], nodes)
    return Job(
        uid="heavy",
        namespace="red",
        name="heavy",
        queue="default",
        priority=0,
        submitted_s=0,
        attempt=1,
        num_nodes=nodes,
        per_node={GPU: 64},
        ranks_per_node=per_node,
        workload=workload(rng, nodes, per_node),
        terms=terms,
        before=tuple(before),
    )
