"""Digest every plan of simulated runs and of large clusters, to compare two commits.

A change that only moves or renames code must leave the digest as it is:
``cd tests && python -m simulation.plan_digest``. Values and their order count; names do
not, except the classes of values that can be of several. Prints one JSON object: how many plans,
and their SHA-256. ``recorded_plans`` compares fewer plans in every ``make test``.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
from typing import Any

from bench import bench_decide
from railwright_scheduler import plan as scheduling
from railwright_scheduler.policy.decide import decide
from simulation.recorded_plans import plain
from simulator.run import run

SEEDS = 60
"""The emphases take turns."""


class PlanDigest:
    """Takes plans while it is entered, in place of the function that makes them."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self.plans = 0

    def __enter__(self) -> PlanDigest:
        self._take = scheduling.plan
        scheduling.plan = self._taken
        return self

    def __exit__(self, *_: object) -> None:
        scheduling.plan = self._take

    def _taken(self, *arguments: Any, **keywords: Any) -> Any:
        plan = self._take(*arguments, **keywords)
        # The name of a ledger's incarnation is random in every run.
        self.add(dataclasses.replace(plan, ledger=dataclasses.replace(plan.ledger, incarnation="")))
        return plan

    def add(self, plan: object) -> None:
        """Take one value into the digest."""
        self.plans += 1
        self._digest.update(json.dumps(plain(plan)).encode())

    def hexdigest(self) -> str:
        """The digest of all so far."""
        return self._digest.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    chosen = parser.parse_args()
    with PlanDigest() as digest:
        for seed in range(chosen.seeds):
            run(seed)
        for snapshot in bench_decide.snapshots():
            digest.add(decide(snapshot))
    print(json.dumps({"plans": digest.plans, "sha256": digest.hexdigest()}))


if __name__ == "__main__":
    main()
