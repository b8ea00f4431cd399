"""Seed after seed on all cores, until so many steps are done or one seed breaks an invariant.

In odd seeds the control plane is cut off from all nodes now and then; in half of the even ones
ranks report their steps, and hang. In every fifth seed some jobs have two roles, and in every
eleventh pods of no known job are bound beside others.

``python soak.py`` tells on stderr how far it is; the last line on stdout is one JSON object. A seed
that broke something is printed with what happened, and the exit code is 1: it belongs in seeds.txt.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field

from railwright_scheduler.simulator.run import RunError, run

STEPS = 500
SEEDS_A_TASK = 200
TOLD_EVERY_S = 10.0


@dataclass(slots=True)
class Total:
    """What some seeds went through together; ``broken`` are the seeds that broke, and how."""

    seeds: int = 0
    steps: int = 0
    writes: int = 0
    broken: dict[int, str] = field(default_factory=dict)

    def add(self, other: Total) -> None:
        """Both together."""
        self.seeds += other.seeds
        self.steps += other.steps
        self.writes += other.writes
        self.broken |= other.broken


def soak(first: int, count: int) -> Total:
    """Run so many seeds; none after one that broke."""
    total = Total()
    for seed in range(first, first + count):
        total.seeds += 1
        try:
            outcome = run(
                seed,
                steps=STEPS,
                cuts=seed % 2 == 1,
                hangs=seed % 4 == 2,
                pre_runs=seed % 3 == 0,
                crashes=seed % 8 == 0,
                roles=seed % 5 == 0,
                deadlines=seed % 7 == 0,
                orphans=seed % 11 == 0,
            )
        except RunError as broken:
            total.broken[seed] = str(broken)
            break
        total.steps += outcome.steps
        total.writes += outcome.writes
    return total


def soak_all(first: int, steps: int, processes: int) -> Total:
    """Run seeds from the first on in so many processes; stop at what breaks."""
    total = Total()
    started_s = reported_s = time.monotonic()
    following = first
    under_way: set[Future[Total]] = set()
    with ProcessPoolExecutor(processes) as pool:
        while total.steps < steps and not total.broken:
            while len(under_way) < 2 * processes:
                under_way.add(pool.submit(soak, following, SEEDS_A_TASK))
                following += SEEDS_A_TASK
            done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            for future in done:
                total.add(future.result())
            now_s = time.monotonic()
            if now_s - reported_s > TOLD_EVERY_S:
                reported_s = now_s
                steps_per_s = total.steps / (now_s - started_s)
                print(f"{total.steps:,} of {steps:,} steps, {steps_per_s:,.0f}/s", file=sys.stderr)
        pool.shutdown(cancel_futures=True)
    return total


def main() -> int:
    """Soak as asked on the command line; 1 when a seed broke."""
    parser = argparse.ArgumentParser(description="Run the simulator over many seeds.")
    parser.add_argument("--steps", type=int, default=10_000_000)
    parser.add_argument("--first-seed", type=int, default=1_000_000)
    asked = parser.parse_args()
    started_s = time.monotonic()
    total = soak_all(asked.first_seed, asked.steps, os.cpu_count() or 1)
    seconds = time.monotonic() - started_s
    for seed, message in total.broken.items():
        print(message, file=sys.stderr)
        print(f"add to tests/simulation/seeds.txt: {seed}  and what it broke", file=sys.stderr)
    print(
        json.dumps(
            {
                "steps": total.steps,
                "seeds": total.seeds,
                "writes": total.writes,
                "violations": len(total.broken),
                "seconds": round(seconds, 1),
                "steps_per_second": round(total.steps / seconds),
            }
        )
    )
    return 1 if total.broken else 0


if __name__ == "__main__":
    sys.exit(main())
