"""What planning one job costs: counted work and CPU time of one decision, on generated workloads.

Valid workloads at and near the bounds of their schema, on gangs of 1 to 2,048 nodes of clusters of
several shapes (``fixtures.heavy_workloads``). Prints one JSON object: the largest counted work and
CPU time of a job, nanoseconds of CPU for a unit of work (of jobs that take a tenth of the budget
or more), how many searches ended early, and how many decisions raised.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from unittest import mock

from fixtures import heavy_workloads
from fixtures.jobs import with_role
from railwright_scheduler.budget import PLANNING_WORK, WorkBudget
from railwright_scheduler.isolation import Isolation
from railwright_scheduler.mapping import gang_mapping
from railwright_scheduler.model.snapshot import Snapshot
from railwright_scheduler.policy.decide import decide

JOBS = int(os.environ.get("RAILWRIGHT_JOBS", "300"))
NODES = (1, 2, 3, 9, 16, 31, 64, 97, 128, 256, 500, 512, 1_000, 1_024, 1_999, 2_048)


@dataclass(frozen=True, slots=True)
class Planned:
    """``cpu_s`` without what the same job takes that does not say what it does."""

    seed: int
    cpu_s: float
    work: int
    is_truncated: bool
    raised: str

    @property
    def unit_ns(self) -> float:
        return self.cpu_s * 1e9 / self.work


def main() -> None:
    planned = []
    for seed in range(JOBS):
        planned.append(_planned(seed))
        print(f"{seed + 1} of {JOBS} jobs {planned[-1].raised}", file=sys.stderr)
    units = sorted(each.unit_ns for each in planned if each.work > PLANNING_WORK // 10)
    found = {
        "jobs": JOBS,
        "work_limit": PLANNING_WORK,
        "work_max": max(each.work for each in planned),
        "cpu_s_max": round(max(each.cpu_s for each in planned), 3),
        "over_half_a_second": sum(each.cpu_s > 0.5 for each in planned),
        "unit_ns_p50": round(units[len(units) // 2], 2),
        "unit_ns_max": round(units[-1], 2),
        "truncated": sum(each.is_truncated for each in planned),
        "raised": sum(each.raised != "" for each in planned),
    }
    print(json.dumps(found))


def _planned(seed: int) -> Planned:
    rng = random.Random(seed)
    shape, nodes = rng.choice(heavy_workloads.SHAPES), rng.choice(NODES)
    size = min(max(NODES), int(nodes * rng.choice([1.0, 1.0, 1.3, 2.0])))
    floor = heavy_workloads.cluster(rng, shape, size)
    asked = replace(floor, jobs=(heavy_workloads.job(rng, floor, nodes),))
    plain = replace(floor, jobs=(with_role(asked.jobs[0], workload=None),))
    plain_s, _ = _decided(plain, Isolation())
    isolation = Isolation()
    with _recorded() as budgets:
        cpu_s, is_truncated = _decided(asked, isolation)
    spent = max(1, sum(each.spent for each in budgets))
    raised = "; ".join(fault.error for fault in isolation.faults)
    return Planned(seed, cpu_s - plain_s, spent, is_truncated, raised)


def _decided(snapshot: Snapshot, isolation: Isolation) -> tuple[float, bool]:
    start = time.process_time()
    admitted = decide(snapshot, isolation).admitted
    took_s = time.process_time() - start
    return took_s, any(each.score is not None and each.score.truncated for each in admitted)


@contextmanager
def _recorded() -> Iterator[list[WorkBudget]]:
    """The budget of each job whose ranks are laid out meanwhile."""
    made: list[WorkBudget] = []

    def budget() -> WorkBudget:
        made.append(WorkBudget())
        return made[-1]

    with mock.patch.object(gang_mapping, "WorkBudget", budget):
        yield made


if __name__ == "__main__":
    main()
