"""A mutant that replaces text in one file of a package."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

KUBE, OPERATOR, SCHEDULER = "railwright_kube", "railwright_operator", "railwright_scheduler"
CONTROLLERS = "railwright_controllers"


class PlantError(Exception):
    """A mutant could not be planted, or tests fail without one."""


@dataclass(frozen=True, slots=True)
class ShellMutant:
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
