"""Mutants that the simulation of the operator catches, each with a seed that catches it.

A mutant replaces text in one file of a package. It is planted in a copy of the packages that comes
first on the path of a process of its own, which runs the seed. It is caught if that run breaks an
invariant; a simulation that ends with another exception shows nothing.

``python -m simulation.hunting find`` and the names of mutants: try seeds of their emphases until
one catches each.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from simulation.hunts import HUNTS
from simulation.planted import Hunt, Mutant, PlantError
from simulation.tested_mutants import DEADLINE_S, ROOT, planted_copy
from simulator.run import RunError, run

SEED_MIN, SEEDS_MAX = 1000, 400
"""Which seeds are searched for a mutant."""

SEEDS_TRIED = 60

SOUND, BROKEN, FAILED = 0, 3, 4
"""How a process ends whose run held every invariant, broke one, or ended with another error."""


def broken_seed(mutant: Mutant | None, emphasis: str, seed: int, seeds: int = 1) -> int | None:
    """The first of so many seeds from this one on whose run breaks an invariant with the mutant, or
    with an unchanged copy; None if none does. Raises PlantError if a run ends otherwise."""
    with planted_copy(mutant) as folder:
        ended = _process({"PYTHONPATH": str(folder)}, "run", emphasis, str(seed), str(seeds))
    name = mutant.name if mutant else "no mutant"
    print(f"{name}: {emphasis} {seed}: {ended.stdout[:300]}", file=sys.stderr, flush=True)
    if ended.returncode not in (SOUND, BROKEN):
        raise PlantError(f"{name}: {emphasis} {seed}: {ended.returncode}:\n{ended.stderr}")
    if ended.returncode == SOUND:
        return None
    return int(ended.stdout.removeprefix(f"{emphasis} ").partition(":")[0])


def is_caught(hunt: Hunt) -> bool:
    """Whether the run of its seed, or of one of the next, breaks an invariant with the mutant, and
    does not with an unchanged copy: with any change of the product or of the simulation a seed is
    another run."""
    seed = broken_seed(hunt.mutant, hunt.emphasis, hunt.seed, SEEDS_TRIED)
    return seed is not None and broken_seed(None, hunt.emphasis, seed) is None


def survivors(hunts: Iterable[Hunt]) -> list[str]:
    """The mutants that are not caught, or with which a run ends otherwise."""
    hunts = tuple(hunts)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        caught = pool.map(_is_caught, hunts)
    return [hunt.mutant.name for hunt, its in zip(hunts, caught, strict=True) if not its]


def _is_caught(hunt: Hunt) -> bool:
    try:
        return is_caught(hunt)
    except PlantError as error:
        print(error, file=sys.stderr, flush=True)
        return False


def digest(emphasis: str, seed: int, *, hash_seed: int) -> str:
    """The digest of a run in a process of its own, with this seed for the hashes of strings."""
    variables = {"PYTHONHASHSEED": str(hash_seed)}
    return _process(variables, "run", emphasis, str(seed)).stdout.strip()


def _process(variables: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "simulation.hunting", *arguments],
        cwd=ROOT / "tests",
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"} | variables,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def _run(emphasis: str, seed: int, seeds: int = 1) -> int:
    """Run seeds from this one on until one breaks; print what broke, or the last digest."""
    for each in range(seed, seed + seeds):
        try:
            found = run(each, emphasis).digest
        except RunError as broken:
            print(broken)
            return BROKEN if broken.is_violation else FAILED
    print(found)
    return SOUND


def _find(hunt: Hunt) -> int:
    """Try seeds with the mutant. One process runs them all, as most of its time is its start."""
    with planted_copy(hunt.mutant) as folder:
        arguments = "run", hunt.emphasis, str(SEED_MIN), str(SEEDS_MAX)
        ended = _process({"PYTHONPATH": str(folder)}, *arguments)
    print(f"{hunt.mutant.name}: {ended.stdout[:3000]}{ended.stderr[-3000:]}")
    return int(ended.returncode != BROKEN)


def main() -> int:
    """With ``run``, an emphasis and a seed: run it, and print its digest, or what broke. With
    ``find`` and names: search seeds."""
    verb, *arguments = sys.argv[1:]
    if verb == "run":
        emphasis, *numbers = arguments
        return _run(emphasis, *map(int, numbers))
    return sum(_find(hunt) for hunt in HUNTS if hunt.mutant.name in arguments)


if __name__ == "__main__":
    sys.exit(main())
