"""The operator's own shell with one thing taken away at a time: a named test must fail then.

A mutant replaces text in one file of ``railwright_operator``. It is planted in a copy of the
package that comes first on the path, for the test and for every operator process that the test
starts, so the product has no hook for it. Its test must pass with an unchanged copy planted the
same way, and must fail with the mutant.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "railwright_operator"
DEADLINE_S = 300.0
PASSED, FAILED = 0, 1
"""What pytest ends with; anything else means that it could not run the test."""


class PlantError(Exception):
    """A mutant could not be planted, or its test says nothing about it."""


@dataclass(frozen=True, slots=True)
class ShellMutant:
    """``old`` becomes ``new`` in a file of the operator; ``test`` must fail then."""

    name: str
    file: str
    old: str
    new: str
    test: str

    def plant(self, package: Path) -> None:
        """Change the copy of the package. Raises PlantError unless ``old`` is there once."""
        path = package / self.file
        text = path.read_text()
        if text.count(self.old) != 1:
            raise PlantError(f"{self.name}: not once in {self.file}: {self.old!r}")
        path.write_text(text.replace(self.old, self.new))


TAKE_OVER = "        await _persist(parts.cycle.take_over)\n"
LISTS = """\
        for copy in parts.copies.leading:
            tasks.create_task(copy.run())
"""
WAITS = """\
        for copy in (*parts.copies.leading, *parts.copies.warm):
            await copy.wait_synced()
"""
SYNC = "        await _persist(parts.copies.kinds.sync)\n"

SHELL_MUTANTS = (
    ShellMutant(
        "a binding does not name the pod's UID",
        "kube/bodies.py",
        '"metadata": {"name": name, "uid": uid},',
        '"metadata": {"name": name},',
        "tests/unit/test_actuate.py::test_binding_names_the_uid_of_its_pod",
    ),
    ShellMutant(
        "a deletion does not name the pod's UID",
        "kube/bodies.py",
        '        "preconditions": {"uid": uid},\n',
        "",
        "tests/unit/test_actuate.py::test_deletion_names_the_uid_of_its_pod",
    ),
    ShellMutant(
        "pods are listed before the take-over",
        "__main__.py",
        TAKE_OVER + LISTS + SYNC + WAITS,
        LISTS + SYNC + WAITS + TAKE_OVER,
        "tests/unit/test_take_over.py::test_pods_and_jobs_are_listed_after_the_take_over",
    ),
    ShellMutant(
        "pods are kept current by a standby",
        "copies.py",
        "return self.nodes, self.files, self.classes",
        "return self.nodes, self.files, self.classes, self.pods",
        "tests/unit/test_take_over.py::test_pods_and_jobs_are_listed_after_the_take_over",
    ),
    ShellMutant(
        "no confirm before acting on what was planned",
        "cycle.py",
        "elif plan.confirms or self._clock()",
        "elif self._clock()",
        "tests/unit/test_cycle.py::test_a_leader_that_was_replaced_without_noticing_binds_nothing",
    ),
    ShellMutant(
        "no confirm by a leader with nothing to write",
        "cycle.py",
        "elif plan.confirms or self._clock() - self._sure_s >= SURE_S:",
        "elif plan.confirms:",
        "tests/unit/test_cycle.py::test_leader_with_nothing_to_do_confirms_its_ledger",
    ),
    ShellMutant(
        "a confirm reads nothing",
        "write/ledger.py",
        "if not await self._is_there(self.ledger):",
        "if not self.ledger.epoch:",
        "tests/unit/test_ledger_store.py::test_a_leader_that_was_not_replaced_finds_its_own_ledger",
    ),
    ShellMutant(
        "the incarnation is not compared",
        "write/ledger.py",
        "ours = (held.incarnation, held.holder, held.epoch)",
        "ours = (there.incarnation, held.holder, held.epoch)",
        "tests/unit/test_ledger_store.py::test_ledger_of_another_incarnation_deposes_its_leader",
    ),
    ShellMutant(
        "a deleted ledger is made again by its writer",
        "write/ledger.py",
        '                raise DeposedError("the ledger was deleted") from error\n',
        '                self._version = ""\n'
        "                self._hold(await self._make())\n"
        "                continue\n",
        "tests/unit/test_ledger_store.py::test_write_to_a_deleted_ledger_deposes_its_leader",
    ),
    ShellMutant(
        "a deleted ledger is not noticed by a confirm",
        "write/ledger.py",
        '            raise DeposedError("the ledger is gone: it was deleted") from error\n',
        "            return True\n",
        "tests/unit/test_ledger_store.py::test_leader_without_writes_finds_its_ledger_deleted",
    ),
    ShellMutant(
        "pods are never listed again",
        "watch/reflector.py",
        "if self._version is None or self._clock() - self._listed_s >= RESYNC_S:",
        "if self._version is None:",
        "tests/unit/test_reflector.py"
        "::test_what_a_stream_never_told_is_found_by_the_list_after_a_while",
    ),
    ShellMutant(
        "step reports are dropped as they arrive",
        "heartbeats/sessions.py",
        "steps=message.steps or before.steps,",
        "steps=before.steps,",
        "tests/unit/test_reported_steps.py::test_steps_that_stand_still_end_the_attempt",
    ),
    ShellMutant(
        "step reports do not reach the plan",
        "witnesses.py",
        "steps=None if heard is None else steps_seen(heard),",
        "steps=None,",
        "tests/unit/test_reported_steps.py::test_steps_that_stand_still_end_the_attempt",
    ),
)


@contextmanager
def _copy(mutant: ShellMutant | None) -> Iterator[Path]:
    """A folder with the package in it, changed by the mutant."""
    with tempfile.TemporaryDirectory(prefix="railwright-mutant-") as folder:
        package = Path(folder) / PACKAGE
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "operator" / PACKAGE, package, ignore=ignored)
        if mutant is not None:
            mutant.plant(package)
        yield Path(folder)


def _tested(tests: Iterable[str], mutant: ShellMutant | None) -> tuple[int, str]:
    """How pytest ended with the copy first on the path, and what it printed."""
    with _copy(mutant) as folder:
        ended = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
    return ended.returncode, ended.stdout


def survivors() -> list[str]:
    """The mutants that their tests do not catch. Raises PlantError if tests fail without any."""
    code, printed = _tested(sorted({mutant.test for mutant in SHELL_MUTANTS}), None)
    if code != PASSED:
        raise PlantError(f"tests of shell mutants fail without one:\n{printed}")
    return [mutant.name for mutant in SHELL_MUTANTS if not _is_caught(mutant)]


def _is_caught(mutant: ShellMutant) -> bool:
    """Whether its test fails with it. Raises PlantError if the test could not be run."""
    code, printed = _tested([mutant.test], mutant)
    if code not in (PASSED, FAILED):
        raise PlantError(f"{mutant.name}: pytest ended with {code}:\n{printed}")
    caught = code == FAILED
    told = f"caught by {mutant.test}" if caught else f"survived {mutant.test}"
    print(f"{mutant.name}: {told}", file=sys.stderr, flush=True)
    return caught
