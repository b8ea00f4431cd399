"""How slow each node is for a job, in degrees. Slow nodes are used last among equally near ones.

Nodes are slow at different things (compute, memory, links), and jobs depend on different ones. If a
step of the job can be predicted, the degree of a node is by how much a step is longer on nodes like
it than on normal nodes of its kind. Otherwise its lowest relative speed counts.
"""

from __future__ import annotations

import math

import numpy as np

from railwright_scheduler.arrays import Ints
from railwright_scheduler.budget import ELEMENT, OverBudgetError, WorkBudget
from railwright_scheduler.cluster import SLOWDOWN_DEGREES, Cluster
from railwright_scheduler.cost import step
from railwright_scheduler.cost.hardware import MACHINES
from railwright_scheduler.model.snapshot import Role
from railwright_scheduler.model.workload import Workload
from railwright_scheduler.remembered import Key, remembered
from railwright_topology.relative_speed import EVEN, RelativeSpeed

KINDS_MAX = 64
"""Where slow nodes are of more kinds, predicting a step on each would take a tenth of a second."""

KEPT_BYTES_MAX, KEPT_BYTES = 4 << 20, 4_096
"""Degrees that are kept, and about what each of them takes."""

WORK, PREDICTED = 2_000_000, 500_000
"""What it may take to tell them of one kind, and what it takes to predict a step beside what grows
with ranks."""

ROUNDED = 1e-6
"""Of a degree: what rounding alone makes longer is as fast."""


def degrees(role: Role, cluster: Cluster) -> Ints:
    """The degrees of each node; 0 of those that are not slow for this job."""
    workload = role.workload
    if workload is None or workload.model is None or not cluster.slowdown.any():
        return cluster.slowdown
    slow = {
        (node.machine, node.relative_speed): 0
        for node in cluster.nodes
        if node.relative_speed != EVEN
    }
    if len(slow) > KINDS_MAX or any(name not in MACHINES for name, _ in slow):
        return cluster.slowdown
    try:
        for name, speed in slow:
            degrees = _degrees(WorkBudget(WORK), workload, role.ranks_per_pod, name, speed)
            if degrees is None:
                return cluster.slowdown
            slow[name, speed] = degrees
    except OverBudgetError:
        return cluster.slowdown
    its = (slow.get((node.machine, node.relative_speed), 0) for node in cluster.nodes)
    return np.fromiter(its, dtype=np.int64, count=len(cluster.nodes))


def _key(workload: Workload, ranks_per_node: int, name: str, speed: RelativeSpeed) -> Key:
    return Key((workload.key, ranks_per_node, name, speed), KEPT_BYTES)


@remembered(KEPT_BYTES_MAX, _key)
def _degrees(
    work: WorkBudget, workload: Workload, ranks_per_node: int, name: str, speed: RelativeSpeed
) -> int | None:
    """None where no step can be predicted on such machines."""
    work.spend(PREDICTED + ELEMENT * workload.split.ranks)
    kind = MACHINES[name]
    if kind.devices < ranks_per_node or step.unsupported_reason(workload, kind.of(ranks_per_node)):
        return None
    even_s, paced_s = (
        step.predict(*workload.parts, each.of(ranks_per_node)).total
        for each in (kind, kind.at_speed(speed))
    )
    return math.ceil(SLOWDOWN_DEGREES * (1.0 - min(1.0, even_s / paced_s)) - ROUNDED)
