"""Run the operator over seed after seed on all cores, until its requests are so many; and beside
each seed courses of plans alone, which need no API server.

It prints its progress on stderr; the last line on stdout is one JSON object. A seed that breaks an
invariant is printed with what happened, and kept (``kept_seeds``); then the exit code is 1. The
others go on, as one seed says nothing of how many break, until ``BROKEN_MAX`` did.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field

from simulation import plan_invariants
from simulation.kept_seeds import COURSE, kept_if_it_fails
from simulator.emphasis import CONTROLLERS, ROLES, of_seed
from simulator.run import RunError, run

SEEDS_A_TASK = 20
COURSES_A_SEED = 4
PROGRESS_S = 10.0
BROKEN_MAX = 8


@dataclass(slots=True)
class Total:
    """What some seeds went through together; ``broken`` are the seeds that broke, and how."""

    seeds: int = 0
    requests: int = 0
    plans: int = 0
    causes: Counter[str] = field(default_factory=Counter)
    broken: dict[int, str] = field(default_factory=dict)

    def add(self, other: Total) -> None:
        """Both together."""
        self.seeds += other.seeds
        self.requests += other.requests
        self.plans += other.plans
        self.causes += other.causes
        self.broken |= other.broken


def emphasis_of(seed: int) -> str:
    """The name of its emphasis: of ten seeds one has the real controllers, and one several
    roles."""
    return {8: ROLES.name, 9: CONTROLLERS.name}.get(seed % 10, of_seed(seed))


def soak(first: int, count: int) -> Total:
    """Run so many seeds."""
    total = Total()
    for seed in range(first, first + count):
        total.seeds += 1
        try:
            with kept_if_it_fails(emphasis_of(seed), seed):
                outcome = run(seed, emphasis_of(seed))
            for course in range(seed * COURSES_A_SEED, (seed + 1) * COURSES_A_SEED):
                with kept_if_it_fails(COURSE, course):
                    total.plans += plan_invariants.check(course)
        except (RunError, plan_invariants.PlanError) as broken:
            total.broken[seed] = str(broken)
            print(broken, file=sys.stderr, flush=True)
            continue
        total.requests += sum(outcome.requests.values())
        total.causes += Counter(outcome.causes)
    return total


def soak_all(first: int, requests: int, processes: int) -> Total:
    """Run seeds from the first on in so many processes, until too many break."""
    total = Total()
    started_s = reported_s = time.monotonic()
    following = first
    under_way: set[Future[Total]] = set()
    with ProcessPoolExecutor(processes) as pool:
        while total.requests < requests and len(total.broken) < BROKEN_MAX:
            while len(under_way) < 2 * processes:
                under_way.add(pool.submit(soak, following, SEEDS_A_TASK))
                following += SEEDS_A_TASK
            done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            for future in done:
                total.add(future.result())
            now_s = time.monotonic()
            if now_s - reported_s > PROGRESS_S:
                reported_s = now_s
                a_second = total.requests / (now_s - started_s)
                progress = f"{total.requests:,} of {requests:,} requests, {a_second:,.0f}/s"
                print(progress, file=sys.stderr, flush=True)
        for future in under_way:
            if not future.cancel():
                total.add(future.result())
    return total


def main() -> int:
    """Soak as the command line says; 1 when a seed broke."""
    parser = argparse.ArgumentParser(description="Run the operator in simulated time.")
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--first-seed", type=int, default=1_000_000)
    options = parser.parse_args()
    started_s = time.monotonic()
    total = soak_all(options.first_seed, options.requests, os.cpu_count() or 1)
    seconds = time.monotonic() - started_s
    figures = {
        "requests": total.requests,
        "plans": total.plans,
        "seeds": total.seeds,
        "causes": dict(total.causes.most_common()),
        "violations": len(total.broken),
        "broken": [f"{emphasis_of(seed)} {seed}" for seed in sorted(total.broken)],
        "seconds": round(seconds, 1),
        "requests_per_second": round(total.requests / seconds),
    }
    print(json.dumps(figures))
    return 1 if total.broken else 0


if __name__ == "__main__":
    sys.exit(main())
