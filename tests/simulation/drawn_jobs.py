"""Jobs drawn with every feature that a plan depends on: roles, constraints, workloads, pre-runs."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from railwright_scheduler.cluster_state import ObservedPreRun
from railwright_scheduler.model.node_affinity import (
    NodeAffinity,
    NodeRequirement,
    NodeSelectorTerm,
    SelectorOperator,
)
from railwright_scheduler.model.snapshot import (
    NO_CONSTRAINTS,
    Job,
    Role,
    TierLimit,
    Toleration,
    TopologyConstraints,
)
from railwright_scheduler.model.workload import Parallelism, Recipe, Transformer, Workload

GPU = "nvidia.com/gpu"
_GPT = Transformer(8, 2048, 16, 16, 128, 8192, 51_200)
_CONSTRAINTS = (
    NO_CONSTRAINTS,
    NO_CONSTRAINTS,
    NO_CONSTRAINTS,
    TopologyConstraints(required="rack"),
    TopologyConstraints(preferred="rack"),
    TopologyConstraints(spreads=(TierLimit("rack", 1),)),
    TopologyConstraints(aligned=True),
)
_SEGMENTS = TopologyConstraints(required="block", segments=(TierLimit("nearest", 2),))
_NO_TIER = TopologyConstraints(required="pod")
_NOT_B200 = NodeRequirement("kind", SelectorOperator.NOT_IN, frozenset({"b200"}))
_AFFINITIES = (None, None, None, NodeAffinity((NodeSelectorTerm((_NOT_B200,), ()),)))


def draw_job(rng: Random, uid: str) -> tuple[Job, ObservedPreRun | None]:
    """A job of one to three roles, and its pre-run, if it has one."""
    worker = _draw_worker(rng)
    roles = [worker]
    if worker.constraints is not _SEGMENTS and rng.random() < 0.3:
        amounts = {"cpu": 8_000, "pods": 1}
        roles.append(Role(1, amounts, name="evaluator", shares_topology=rng.random() < 0.5))
        if rng.random() < 0.4:
            roles.append(Role(rng.choice((1, 2)), {GPU: 2, "pods": 1}, name="server"))
    shared = worker.constraints
    job = Job(
        uid=uid,
        namespace=rng.choice(("red", "blue")),
        name=uid,
        queue=rng.choice(("default",) * 15 + ("missing",)),
        priority=rng.randint(0, 2),
        submitted_s=rng.randint(0, 5),
        attempt=1,
        roles=tuple(
            replace(role, constraints=shared) if role.shares_topology else role for role in roles
        ),
    )
    wants_pre_run = worker.workload is not None and rng.random() < 0.3
    return job, ObservedPreRun(f"pre-{uid}") if wants_pre_run else None


def _draw_worker(rng: Random) -> Role:
    replicas = rng.choice((1, 2, 2, 3, 4, 4, 6))
    constraints = rng.choice(_CONSTRAINTS)
    if rng.random() < 0.2:
        constraints = _NO_TIER if replicas % 2 else _SEGMENTS
    role = Role(
        replicas,
        {GPU: rng.choice((2, 8)), "pods": 1},
        name="worker",
        selector=rng.choice(({}, {}, {}, {"kind": "h100"})),
        affinity=rng.choice(_AFFINITIES),
        tolerations=rng.choice(((), (Toleration("", "Exists", "", ""),))),
        constraints=constraints,
    )
    if replicas == 1 or rng.random() < 0.4:
        return role
    split = Parallelism(tensor=8, data=replicas)
    if replicas % 2 == 0 and rng.random() < 0.5:
        split = Parallelism(tensor=8, pipeline=2, data=replicas // 2)
    workload = Workload(_GPT, split, Recipe(2048, 1, 2 * split.data))
    return replace(role, per_pod={GPU: 8, "pods": 1}, ranks_per_pod=8, workload=workload)
