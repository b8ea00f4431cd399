"""Scotch's static mapping, Debian's build of it: the best general peer there is.

It is given the same exchanges and the same free places, with the ranks' numbers scrambled, so that
their order tells it nothing; and besides them, as that suits it better, whole nodes' worth of ranks
that we put together. The best of all its answers counts.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

from bench import hierarchy
from railwright_scheduler.arrays import Ints
from railwright_scheduler.communication.traffic_matrix import TrafficMatrix
from railwright_scheduler.mapping.problem import Places

PACKAGE = {"scotch": ("scotch_gmap",)}
PROGRAM = "scotch_gmap"
DEADLINE_S = 300.0


def mapped(exchanges: TrafficMatrix, places: Places, *, seed: int) -> tuple[Ints, float]:
    """The place of each rank, and seconds; places are to be listed domain after domain."""
    scrambled = np.random.default_rng(seed).permutation(exchanges.ranks)
    with tempfile.TemporaryDirectory() as folder:
        graph, target, answer = (Path(folder, name) for name in ("graph", "target", "answer"))
        graph.write_text(_graph(exchanges, scrambled))
        target.write_text(_target(places))
        started_s = time.perf_counter()
        subprocess.run(
            [PROGRAM, graph, target, answer, Path(folder, "log")],
            check=True,
            capture_output=True,
            timeout=DEADLINE_S,
        )
        took_s = time.perf_counter() - started_s
        lines = [line.split() for line in answer.read_text().splitlines()[1:]]
    terminals = np.empty(exchanges.ranks, dtype=np.int64)
    for vertex, terminal in lines:
        terminals[int(vertex)] = int(terminal)
    # Of a part of a tree it numbers the leaves as they were listed.
    return terminals[scrambled], took_s


def _graph(exchanges: TrafficMatrix, scrambled: Ints) -> str:
    """Its format: version 0, vertices and arcs, first number 0 and weights of arcs; a vertex a
    line: how many arcs, and weight and end of each."""
    arcs: list[list[str]] = [[] for _ in range(exchanges.ranks)]
    ends = zip(scrambled[exchanges.a], scrambled[exchanges.b], exchanges.weight, strict=True)
    for one, other, weight in ends:
        arcs[one].append(f"{round(weight)} {other}")
        arcs[other].append(f"{round(weight)} {one}")
    vertices = "\n".join(f"{len(its)} {' '.join(its)}" for its in arcs)
    return f"0\n{exchanges.ranks} {2 * len(exchanges.a)}\n0 010\n{vertices}\n"


def _target(places: Places) -> str:
    """A whole tree, and those of its leaves that there are."""
    whole = hierarchy.of(places)
    steps = zip(whole.sizes, whole.distance, strict=True)
    tree = f"tleaf {len(whole.sizes)} {' '.join(f'{size} {far}' for size, far in steps)}\n"
    if whole.is_whole:
        return tree
    return f"sub\n{len(whole.number)} {' '.join(map(str, whole.number.tolist()))}\n{tree}"
