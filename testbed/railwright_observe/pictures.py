"""Pictures of the page in a real browser, and whether each panel is drawn."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlencode

from railwright_dashboards.generate import DASHBOARDS
from railwright_testbed import TestbedError, command, requirements

PROGRAMS = {"chromium": ("chromium",), "pngquant": ("pngquant",)}
"""By Debian's names of their packages."""

COLORS = 128
"""Of a picture: enough for lines and text, and a third of the bytes."""

DEADLINE_S = 300.0


def prepare() -> None:
    """Install the programs, before nodes run: an installation changes what they mount."""
    requirements.install(PROGRAMS)


def take(built: Path, folder: Path, *, address: str, choices: Mapping[str, str]) -> list[str]:
    """Write one of each dashboard, with these arguments of the page, into the folder; the panels
    without data. Raises TestbedError if a panel was not drawn or reports an error."""
    pages = {
        each.uid: f"{address}?{urlencode({'dashboard': each.uid, **choices})}"
        for each in DASHBOARDS
    }
    program = ["node", str(built / "pictures.mjs"), str(shutil.which("chromium")), str(folder)]
    seen = json.loads(command.output(program, stdin=json.dumps(pages), deadline_s=DEADLINE_S))
    files = [str(folder / f"{each.uid}.png") for each in DASHBOARDS]
    command.output(["pngquant", "--force", "--ext=.png", "--strip", str(COLORS), *files])
    wrong = []
    for each in DASHBOARDS:
        found = seen[each.uid]
        titles = {panel.title for panel in each.panels}
        wrong += [f"{each.uid}: not drawn: {name}" for name in titles - {*found["panels"]}]
        wrong += [f"{each.uid}: {error}" for error in found["errors"]]
    if wrong:
        raise TestbedError("\n".join(wrong))
    return [f"{uid}: {title}" for uid, found in seen.items() for title in found["empty"]]
