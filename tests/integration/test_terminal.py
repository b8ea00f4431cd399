"""``railwright`` at a terminal: views that are drawn again, and sizes that change."""

from __future__ import annotations

import re
import signal

import pytest

from fixtures import command_line, terminals
from fixtures.terminals import Terminal
from integration.operator_site import Floor, Site
from railwright_testbed import waiting

WIDE, NARROW = (100, 30), (60, 16)
COMPARED = 300
"""Characters, fewer than the smaller screen shows."""

WATCH = ("-m", "railwright_cli", "status", "-w", "waits", "-n")


@pytest.fixture
def config(site: Site) -> dict[str, str]:
    return {"KUBECONFIG": str(site.plane.kubeconfig)}


def _shown(terminal: Terminal) -> str:
    """The begin of the screen without ages, which differ, and with them where lines are broken."""
    text = "".join(re.sub(r"\b\d+[smhd]\b", "", line) for line in terminal.lines())
    return "".join(text.split())[:COMPARED]


def _until(terminal: Terminal, words: str) -> None:
    waiting.until(
        lambda: words in "\n".join(terminal.lines()),
        f"{words!r} on the screen",
        deadline_s=30,
        evidence=lambda: "\n".join(terminal.lines()),
    )


@pytest.mark.parametrize(("before", "after"), [(WIDE, NARROW), (NARROW, WIDE)], ids=str)
def test_watched_status_survives_a_resize(
    floor: Floor, config: dict[str, str], before: tuple[int, int], after: tuple[int, int]
) -> None:
    """It shows what it shows in a terminal that had that size from the start."""
    floor.apply("waits", nodes=99).until_reason("NeverFits")
    command = (*WATCH, floor.name)
    with (
        terminals.running(*command, size=before, environment=config) as (resized, process),
        terminals.running(*command, size=after, environment=config) as (fresh, _),
    ):
        _until(resized, "NeverFits")
        _until(fresh, "NeverFits")
        resized.resize(*after, process)
        waiting.until(
            lambda: _shown(resized) == _shown(fresh),
            "the same on both screens",
            deadline_s=30,
            evidence=lambda: "\n".join(
                [*resized.lines(), "---", *fresh.lines(), f"ended: {process.poll()}"]
            ),
        )
        assert len(_shown(resized)) == COMPARED
        assert max(map(len, resized.lines())) <= after[0]


def test_watched_status_is_drawn_in_place(floor: Floor, config: dict[str, str]) -> None:
    """Nothing is erased first, and the last state stays on the screen of the shell."""
    floor.apply("waits", nodes=99).until_reason("NeverFits")
    with terminals.running(*WATCH, floor.name, environment=config) as (terminal, process):
        _until(terminal, "NeverFits")
        command_line.printed(floor.site.plane.kubeconfig, "suspend", "waits", "-n", floor.name)
        _until(terminal, "Suspended")
        process.send_signal(signal.SIGINT)
        process.wait(30)
        waiting.until(
            lambda: terminals.FIRST_SCREEN in terminal.written, "the first screen", deadline_s=30
        )
        waiting.until(
            lambda: b"Suspended" in terminal.written.partition(terminals.FIRST_SCREEN)[2],
            "the last state after it",
            deadline_s=30,
        )
    assert terminal.written.count(terminals.SECOND_SCREEN) == 1
    assert terminals.ERASE_SCREEN not in terminal.written
