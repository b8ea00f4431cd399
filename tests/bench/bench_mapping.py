"""What our mappings cost beside those of others, and how long both take; and steps of trainings.

The cost is what is exchanged times how far apart it is: what the others minimise too. Steps are
judged by what is predicted, and by a simulator that knows nothing of the prediction. Progress goes
to stderr, one JSON object to stdout.
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from bench import arnold, bars, exact, scotch, sharedmap, step_times
from bench.mapping_cases import CASES, Case
from railwright_scheduler.arrays import Ints
from railwright_scheduler.communication.traffic_matrix import TrafficMatrix
from railwright_scheduler.mapping import blocks, mapper
from railwright_scheduler.mapping.blocks import Blocks, Rooms
from railwright_scheduler.mapping.problem import Places, cost
from railwright_testbed import requirements

SEEDS = range(3)
RANDOM = range(5)
SHARED_RANKS_MAX = 2_048
"""SharedMap gets more than one try up to so many ranks: beyond, one takes minutes."""

PEERS = ("linear", "sorted", "scotch", "sharedmap", "arnold", "exact")

Figures = dict[str, Any]


BOUNDS = {
    "worst_ratio_to_best_peer": 1.0,
    "irregular_ratio_to_best_peer": 1.0,
    "planted_gap": 0.0,
    "steptime_ratio_to_best_peer": 1.0,
    "steptime_ratio_simgrid": 1.02,
}


def main() -> int:
    requirements.install(scotch.PACKAGE)
    found = [_case(case) for case in CASES]
    ratios = [each["ours"] / _best_peer(each) for each in found]
    irregular = [at for at, case in enumerate(CASES) if case.is_irregular]
    gains = [1 - found[at]["ours"] / found[at]["sorted"] for at in irregular]
    planted = [each for each, case in zip(found, CASES, strict=True) if case.planted]
    figures = {
        "cases": found,
        "worst_ratio_to_best_peer": round(max(ratios), 4),
        "irregular_ratio_to_best_peer": round(max(ratios[at] for at in irregular), 4),
        "mean_gain_over_sorted_irregular": round(statistics.mean(gains), 4),
        "planted_gap": max(each["ours"] / each["sorted"] - 1 for each in planted),
        **step_times.compared(),
    }
    return bars.publish(figures, at_most=BOUNDS)


def _best_peer(figures: Figures) -> float:
    return min(float(figures[peer]) for peer in PEERS if figures[peer] is not None)


def _case(case: Case) -> Figures:
    exchanges, places = case.exchanges(), case.places()
    rng = np.random.default_rng(0)
    shuffled = _shuffled(places, rng)
    started_s = time.perf_counter()
    ours = cost(exchanges, shuffled, mapper.assign(exchanges, shuffled))
    ours_s = time.perf_counter() - started_s
    nodes = np.split(np.arange(places.count), np.flatnonzero(np.diff(places.domains[0])) + 1)
    by_chance = [np.concatenate([nodes[at] for at in rng.permutation(len(nodes))]) for _ in RANDOM]
    answers, scotch_s = _scotch(exchanges, places)
    figures = {
        "name": case.name,
        "ranks": exchanges.ranks,
        "random": statistics.mean(cost(exchanges, places, where) for where in by_chance),
        "linear": cost(exchanges, places, np.arange(exchanges.ranks)),
        "sorted": cost(exchanges, places, np.lexsort(places.domains)),
        "scotch": _least(exchanges, places, answers),
        "sharedmap": _least(exchanges, places, _sharedmap(exchanges, places)),
        "arnold": _least(exchanges, places, _arnold(exchanges, places)),
        "exact": _least(exchanges, places, _exact(exchanges, places)),
        "ours": ours,
        "ours_seconds": round(ours_s, 2),
        "scotch_seconds": round(scotch_s, 2),
    }
    print(f"{ours / _best_peer(figures):.4f} {json.dumps(figures)}", file=sys.stderr)
    return figures


def _least(exchanges: TrafficMatrix, places: Places, answers: Iterator[Ints]) -> float | None:
    return min((cost(exchanges, places, where) for where in answers), default=None)


def _shuffled(places: Places, rng: np.random.Generator) -> Places:
    """The same places with other names of domains, in another order."""
    order = rng.permutation(places.count)
    names = [rng.permutation(int(domains.max()) + 1)[domains] for domains in places.domains]
    return Places(np.array(names)[:, order], places.distance)


def _units(exchanges: TrafficMatrix, places: Places) -> Iterator[tuple[Blocks, Rooms]]:
    """Ranks put together as suits whole nodes: what helps us is given to the others as well."""
    size = blocks.volume(exchanges, places)
    rooms = blocks.rooms(places, size)
    yield from ((its, rooms) for its in blocks.groupings(exchanges, size))


def _scotch(exchanges: TrafficMatrix, places: Places) -> tuple[Iterator[Ints], float]:
    """All its answers, and the time of the slowest on ranks."""
    runs = [scotch.mapped(exchanges, places, seed=seed) for seed in SEEDS]
    laid = (
        its.spread(scotch.mapped(its.matrix, rooms.places, seed=seed)[0], rooms)
        for its, rooms in _units(exchanges, places)
        for seed in SEEDS
    )
    return itertools.chain((where for where, _ in runs), laid), max(took_s for _, took_s in runs)


def _sharedmap(exchanges: TrafficMatrix, places: Places) -> Iterator[Ints]:
    seeds = SEEDS if exchanges.ranks <= SHARED_RANKS_MAX else range(1)
    for seed in seeds:
        if (found := sharedmap.mapped(exchanges, places, seed=seed)) is not None:
            yield found
        for its, rooms in _units(exchanges, places):
            if (found := sharedmap.mapped(its.matrix, rooms.places, seed=seed)) is not None:
                yield its.spread(found, rooms)


def _arnold(exchanges: TrafficMatrix, places: Places) -> Iterator[Ints]:
    for its, rooms in _units(exchanges, places):
        for where in arnold.mapped(its.matrix, rooms.places):
            yield its.spread(where, rooms)


def _exact(exchanges: TrafficMatrix, places: Places) -> Iterator[Ints]:
    for its, rooms in _units(exchanges, places):
        if len(rooms.members) <= exact.NODES_MAX:
            yield its.spread(exact.mapped(its.matrix, rooms.places), rooms)


if __name__ == "__main__":
    sys.exit(main())
