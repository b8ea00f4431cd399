"""The progress of long commands: in a terminal alone, and in colour for those who want it."""

from __future__ import annotations

import re

import pytest

from fixtures import terminals

SLOW = """
import time
from railwright_cli import progress
progress.QUIET_S = 0.1
with progress.shown_progress("jobs") as show:
    show(500, 2000)
    time.sleep(1)
"""
COLOUR = re.compile(rb"\x1b\[(3|4)[0-9;]*m")


@pytest.mark.parametrize(
    ("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)], ids=str
)
def test_progress_is_shown_and_removed(environment: dict[str, str], coloured: bool) -> None:
    with terminals.running("-c", SLOW, environment=environment) as (terminal, process):
        assert process.wait(30) == 0
    assert b"reading jobs: 500" in terminal.written
    assert b"remain" in terminal.written
    assert terminal.lines() == []
    assert bool(COLOUR.search(terminal.written)) is coloured


def test_nothing_is_drawn_in_a_dumb_terminal() -> None:
    with terminals.running("-c", SLOW, environment={"TERM": "dumb"}) as (terminal, process):
        assert process.wait(30) == 0
    assert b"\x1b" not in terminal.written
