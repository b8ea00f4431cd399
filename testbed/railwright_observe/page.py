"""The page that draws the dashboards: Perses' packages from npm, built once into the cache."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

from railwright_dashboards.generate import DASHBOARDS, FOLDER
from railwright_observe import perses
from railwright_testbed import binaries, command, requirements

SOURCE = Path(__file__).with_name("page")
PROGRAMS = {"npm": ("node", "npm")}
"""By Debian's names of their packages."""

PACKAGES = ("package.json", "package-lock.json")
INSTALL_DEADLINE_S = 1800.0
"""The packages have 500 MB."""

SCRAPE_INTERVAL_S = 5
"""Long enough for a scrape on a machine that is busy."""

RANGE_S = 600
"""What the panels show at first."""


def build() -> Path:
    """The folder with the built page, and with what takes pictures of it. The packages are
    installed once for all versions of the page."""
    requirements.install(PROGRAMS)
    key = hashlib.sha256(b"".join((SOURCE / name).read_bytes() for name in PACKAGES))
    folder = binaries.cache_folder() / "observe" / key.hexdigest()[:16]
    with binaries.building(folder):
        if not folder.exists():
            unfinished = folder.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            shutil.copytree(SOURCE, unfinished)
            _npm(unfinished, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
            unfinished.rename(folder)
        shutil.copytree(SOURCE, folder, dirs_exist_ok=True)
        _npm(folder, "run", "build")
    return folder


def write(built: Path, folder: Path, *, prometheus: str, interval_s: int) -> None:
    """The files of the page, for this address of Prometheus and the interval of its scrapes."""
    shutil.copytree(built / "dist", folder)
    shutil.copy(built / "index.html", folder)
    others = [{"name": each.uid, "title": each.title} for each in DASHBOARDS]
    (folder / "dashboards.json").write_text(json.dumps(others))
    for each in DASHBOARDS:
        name = f"{each.uid}.json"
        translated = perses.translate(
            json.loads((FOLDER / name).read_text(encoding="utf-8")),
            prometheus=prometheus,
            interval_s=interval_s,
            range_s=RANGE_S,
        )
        (folder / name).write_text(json.dumps(translated))


def _npm(folder: Path, *arguments: str) -> None:
    command.output(["npm", "--prefix", str(folder), *arguments], deadline_s=INSTALL_DEADLINE_S)
