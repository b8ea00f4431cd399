"""Brings the launcher into a user's image: ``python3 -m railwright.install /railwright``.

An init container runs this; the folder is an emptyDir that the training container mounts too.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from railwright import interpreter

LAUNCH = ("launch", "launch.py")


def install(folder: Path) -> None:
    """Copies this package into the folder, and beside it its commands and this interpreter.

    Raises OSError when the folder does not exist or cannot be written.
    """
    package = Path(__file__).resolve().parent
    target = folder / package.name
    target.mkdir(exist_ok=True)
    for source in sorted(package.glob("*.py")):
        shutil.copyfile(source, target / source.name)
    for name in LAUNCH:
        shutil.copy(package / name, folder / name)
    interpreter.copy(folder / "interpreter", ["railwright.launcher"])


def main() -> int:
    """The exit code: 0, or 2 when the one argument is missing."""
    if len(sys.argv) != 2:
        print("usage: python3 -m railwright.install FOLDER", file=sys.stderr)
        return 2
    install(Path(sys.argv[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
