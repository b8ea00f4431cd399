"""A job of small steps, whose nodes send each other much for what they compute: Llama 3 70B, two
sequences of 2,048 tokens a step for each two nodes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bench.step_cases import DEVICES, GPU, MACHINE
from fixtures import jobs
from railwright_scheduler.cluster import Cluster
from railwright_scheduler.mapping.evaluation import OrderEvaluator
from railwright_scheduler.mapping.request import build_request
from railwright_scheduler.model.snapshot import Job, Node
from railwright_scheduler.model.workload import (
    Framework,
    Parallelism,
    Recipe,
    Sharding,
    Transformer,
    Workload,
)


def workload(replicas: int) -> Workload:
    """Two nodes hold a replica, a stage each."""
    recipe = Recipe(
        sequence=2048,
        micro_batch=1,
        global_batch=2 * replicas,
        sequence_parallel=True,
        sharding=Sharding.OPTIMIZER,
        gradient_bytes=4,
        framework=Framework.MEGATRON_PIPELINE_FIRST,
    )
    model = Transformer(80, 8192, 64, 8, 128, 28_672, 128_256, gated=True)
    return Workload(model, Parallelism(tensor=8, pipeline=2, data=replicas), recipe)


def job(replicas: int) -> Job:
    """It waits, alone, in the queue ``default``."""
    does = workload(replicas)
    return jobs.job(
        uid="job",
        namespace="team",
        name="job",
        queue="default",
        priority=0,
        submitted_s=0,
        attempt=1,
        replicas=does.split.ranks // DEVICES,
        per_pod={GPU: DEVICES, "pods": 1},
        ranks_per_pod=DEVICES,
        workload=does,
    )


def node(name: str, domains: tuple[str, ...]) -> Node:
    """A free one, that the job's ranks fill."""
    return Node(name, domains, {GPU: DEVICES, "pods": 110}, {}, machine=MACHINE)


def predicted_s(asked: Job, hall: Cluster, nodes: Sequence[str]) -> float:
    """What its step takes with a node rank on each of these, in their order."""
    at = {node.name: column for column, node in enumerate(hall.nodes)}
    columns = np.array([at[name] for name in nodes])
    line = np.sort(columns)
    gang = OrderEvaluator(build_request(asked.roles[0], hall, line, budget=0))
    return gang.evaluate(np.searchsorted(line, columns)).step_us / 1e6
