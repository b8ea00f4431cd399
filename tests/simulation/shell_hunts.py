"""Mutants that the simulation of the operator catches, each with a seed that catches it.

A mutant replaces text in one file of a package. It is planted in a copy of the packages that comes
first on the path of a process of its own, which runs the seed. It is caught if that run breaks an
invariant; a simulation that ends with another exception shows nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from simulation.planted import KUBE, SCHEDULER, PlantError, ShellMutant
from simulation.shell_mutants import DEADLINE_S, ROOT, planted_copy
from simulator import shell_run
from simulator.shell_run import RunError

TEST = "tests/simulation/test_shell_runs.py::test_mutant_is_caught_by_its_seed"
SOUND, BROKEN, FAILED = 0, 3, 4
"""How a process ends whose run held every invariant, broke one, or ended with another error."""


@dataclass(frozen=True, slots=True)
class Hunt:
    """A mutant, and a seed whose run it breaks."""

    mutant: ShellMutant
    seed: int


def _core(name: str, file: str, old: str, new: str, seed: int) -> Hunt:
    """A mutant of the scheduler."""
    return Hunt(ShellMutant(name, file, old, new, TEST, package=SCHEDULER), seed)


STARTS_FIRST = """\
            self.executor.start(plan.actions)
            await self.ledger.write(plan.ledger)
"""
READS_POD = """\
            found = await self.api.get(paths.pod(entry.namespace, name))
            self.pods.absorb(records.answered(found))
            return
"""
DROPS_MISSING = """\
        for held in self._missing_from(listing):
            self._put(held, None)
"""
REVOKES = """\
                self.sessions.revoke(uid, record.attempt)
                continue
"""
WAITS_FOR_STEP = """\
            if granted and held.get((group, attempt), -1) < step:
                continue
"""

HUNTS = (
    Hunt(
        ShellMutant(
            "actions start before the ledger is written",
            "cycle.py",
            "            await self.ledger.write(plan.ledger)\n",
            STARTS_FIRST,
            TEST,
        ),
        1001,
    ),
    Hunt(
        ShellMutant(
            "a conflict of the ledger is ignored",
            "write/ledger.py",
            'raise DeposedError(f"{there.holder} wrote the ledger in epoch {there.epoch}")',
            "pass",
            TEST,
        ),
        1000,
    ),
    Hunt(
        ShellMutant(
            "launchers of a revoked attempt go on",
            "state_builder.py",
            REVOKES,
            "                continue\n",
            TEST,
        ),
        1003,
    ),
    Hunt(
        ShellMutant(
            "the epoch is not raised by a take-over",
            "write/ledger.py",
            "await self.write(self.ledger.taken_over(self._holder))",
            "pass",
            TEST,
        ),
        1000,
    ),
    Hunt(
        ShellMutant(
            "a conflict of a binding counts as bound",
            "write/executor.py",
            READS_POD,
            "            pass\n",
            TEST,
        ),
        1007,
    ),
    Hunt(
        ShellMutant(
            "a status is written over any version",
            "report/reporter.py",
            'resource_version=metadata["resourceVersion"])',
            'resource_version="")',
            TEST,
        ),
        1001,
    ),
    Hunt(
        ShellMutant(
            "a list drops no record", "reflector.py", DROPS_MISSING, "", TEST, package=KUBE
        ),
        1000,
    ),
    Hunt(
        ShellMutant(
            "events of deletions are ignored",
            "reflector.py",
            "self._drop(self._projection.streamed(event.object).metadata)",
            "int(self._projection.streamed(event.object).metadata.resource_version)",
            TEST,
            package=KUBE,
        ),
        1003,
    ),
    Hunt(
        ShellMutant(
            "commits are granted before they are recorded",
            "report/commits.py",
            WAITS_FOR_STEP,
            "",
            TEST,
        ),
        1006,
    ),
    Hunt(
        ShellMutant(
            "step reports do not reach the plan",
            "liveness.py",
            "steps=None if launcher is None else steps_seen(launcher),",
            "steps=None,",
            TEST,
        ),
        1011,
    ),
    _core(
        "foreign pods are not counted",
        "usage.py",
        "others = add_amounts({}, foreign)",
        "others: dict[str, int] = {}",
        1009,
    ),
    _core(
        "a commit ends when some pods are bound",
        "attempt/gang.py",
        "all(pod.node for pod in seen.pods)",
        "any(pod.node for pod in seen.pods)",
        1007,
    ),
    _core(
        "a commit ends before it is recorded",
        "attempt/gang.py",
        "settled = seen.recorded_attempt >= entry.attempt",
        "settled = True",
        1003,
    ),
    _core(
        "an abort ends before it is recorded",
        "attempt/gang.py",
        "recorded = seen.recorded_end >= entry.attempt",
        "recorded = True",
        1002,
    ),
    _core("the Placement is skipped", "attempt/gang.py", "if not seen.placed:", "if False:", 1000),
    _core(
        "an attempt begins beside a live one",
        "pending.py",
        "seen.suspend or seen.record.live or seen.record",
        "seen.suspend or seen.record",
        1000,
    ),
    _core(
        "a job that ended starts again",
        "pending.py",
        " or seen.record.phase in FINAL)",
        ")",
        1001,
    ),
)


def is_caught(mutant: ShellMutant | None, seed: int) -> bool:
    """Whether the run of the seed breaks an invariant with the mutant, or with an unchanged copy.
    Raises PlantError if the run ends otherwise."""
    with planted_copy(mutant) as folder:
        ended = _process("run", seed, {"PYTHONPATH": str(folder)})
    name = mutant.name if mutant else "no mutant"
    print(f"{name}: seed {seed}: {ended.stdout[:300]}", file=sys.stderr, flush=True)
    if ended.returncode not in (SOUND, BROKEN):
        raise PlantError(f"{name}: seed {seed} ended with {ended.returncode}:\n{ended.stderr}")
    return ended.returncode == BROKEN


def survivors(hunts: Iterable[Hunt] = HUNTS) -> list[str]:
    """The mutants that their seeds do not catch. Raises PlantError if a seed breaks without one."""
    hunts = tuple(hunts)
    for seed in sorted({hunt.seed for hunt in hunts}):
        if is_caught(None, seed):
            raise PlantError(f"seed {seed} breaks an invariant without a mutant")
    return [hunt.mutant.name for hunt in hunts if not is_caught(hunt.mutant, hunt.seed)]


def digest(*, seed: int, hash_seed: int) -> str:
    """The digest of a run in a process of its own, with this seed for the hashes of strings."""
    return _process("run", seed, {"PYTHONHASHSEED": str(hash_seed)}).stdout.strip()


def _process(verb: str, seed: int, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "simulation.shell_hunts", verb, str(seed)],
        cwd=ROOT / "tests",
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"} | variables,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def main() -> int:
    """With ``run`` and a seed: run it, and print its digest, or what broke. Else verify all."""
    if sys.argv[1:2] != ["run"]:
        found = survivors()
        print("\n".join(found))
        return len(found)
    try:
        print(shell_run.run(int(sys.argv[2])).digest)
    except RunError as broken:
        print(broken)
        return BROKEN if broken.is_violation else FAILED
    return SOUND


if __name__ == "__main__":
    sys.exit(main())
