"""A mutant that replaces text in one file of a package, and the run of a seed that catches it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

KUBE, OPERATOR, SCHEDULER = "railwright_kube", "railwright_operator", "railwright_scheduler"
CONTROLLERS, CONVERSION = "railwright_controllers", "railwright_conversion"
PROCESS = "railwright_process"


class PlantError(Exception):
    """A mutant could not be planted, or tests fail without one."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """``old`` becomes ``new`` in a file of the ``package``. Then an assertion of ``test`` must
    fail, or the test end with the exception ``raises``."""

    name: str
    file: str
    old: str
    new: str
    test: str
    raises: str = ""
    package: str = OPERATOR

    def plant(self, package: Path) -> None:
        """Change the copy of the package. Raises PlantError unless ``old`` is there once."""
        path = package / self.file
        text = path.read_text()
        if text.count(self.old) != 1:
            raise PlantError(f"{self.name}: not once in {self.file}: {self.old!r}")
        path.write_text(text.replace(self.old, self.new))


TEST = "tests/simulation/test_runs.py::test_mutant_is_caught_by_its_seed"


@dataclass(frozen=True, slots=True)
class Hunt:
    """A mutant, and the emphasis and the seed of a run that breaks with it."""

    mutant: Mutant
    emphasis: str
    seed: int


def of_scheduler(name: str, file: str, old: str, new: str, emphasis: str, seed: int) -> Hunt:
    """A mutant of the scheduler."""
    return Hunt(Mutant(name, file, old, new, TEST, package=SCHEDULER), emphasis, seed)
