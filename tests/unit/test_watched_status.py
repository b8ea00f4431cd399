"""``railwright status -w`` at a terminal: a view that is drawn again, sizes, and signals."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures import scripted_server, terminals
from fixtures.scripted_server import Request, Response, ScriptedServer, event, job
from fixtures.terminals import Terminal
from railwright_testbed import waiting

WIDE, NARROW, TINY = (100, 30), (60, 16), (30, 4)
DEADLINE_S = 30
CONDITIONS = [
    {"type": f"Condition{n}", "status": "False", "reason": "Because", "message": "long " * 30}
    for n in range(8)
]
COMPARED = 300
"""Characters, fewer than the smaller screen shows."""

Opened = tuple[Terminal, "subprocess.Popen[bytes]"]


class Job:
    """A job that runs until the test changes it: ``state`` is the response to a read, and
    each change of it is an event of the watch."""

    def __init__(self) -> None:
        self.state = Response(job("train", phase="Running", conditions=CONDITIONS))
        self._changed = threading.Condition()

    def respond(self, request: Request) -> Response:
        """To a read, or to a watch."""
        state = self.state
        if "watch" not in request.query or state.code != 200:
            return state
        return Response([event("MODIFIED", state.body), functools.partial(self._next, state)])

    def becomes(self, state: Response) -> None:
        """The watches end."""
        with self._changed:
            self.state = state
            self._changed.notify_all()

    def _next(self, before: Response) -> dict[str, object] | None:
        """The event of the next state, which may be there before it is waited for."""
        with self._changed:
            self._changed.wait_for(lambda: self.state is not before, DEADLINE_S)
        match self.state.code:
            case 200:
                return event("MODIFIED", self.state.body)
            case 404:
                return event("DELETED", {})
            case _:
                return None


@pytest.fixture
def scripted() -> Job:
    return Job()


@pytest.fixture
def server(scripted: Job) -> Iterator[ScriptedServer]:
    with scripted_server.running(scripted.respond) as server:
        yield server
        scripted.becomes(scripted_server.status(404, "NotFound", "train"))


@pytest.fixture
def config(server: ScriptedServer, tmp_path: Path) -> dict[str, str]:
    return {"KUBECONFIG": str(server.kubeconfig(tmp_path))}


@contextlib.contextmanager
def watched(
    config: dict[str, str], size: tuple[int, int] = WIDE, **environment: str
) -> Iterator[Opened]:
    """The command in a terminal, once it shows the job."""
    command = ("-m", "railwright_cli", "status", "-w", "train")
    with terminals.running(*command, size=size, environment=config | environment) as opened:
        until(opened[0], "default/train: Running")
        yield opened


def until(terminal: Terminal, words: str) -> None:
    waiting.until(
        lambda: words in "\n".join(terminal.lines()),
        f"{words!r} on the screen",
        deadline_s=DEADLINE_S,
        evidence=lambda: "\n".join(terminal.lines()),
    )


def shown(terminal: Terminal) -> str:
    """The begin of the screen without ages, which differ, and with them where lines are broken."""
    text = "".join(re.sub(r"\b\d+[smhd]\b", "", line) for line in terminal.lines())
    return "".join(text.split())[:COMPARED]


@pytest.mark.parametrize(("before", "after"), [(WIDE, NARROW), (NARROW, WIDE)], ids=str)
def test_view_survives_a_resize(
    config: dict[str, str], before: tuple[int, int], after: tuple[int, int]
) -> None:
    """It shows what it shows in a terminal that had that size from the start."""
    with watched(config, before) as (resized, process), watched(config, after) as (fresh, _):
        resized.resize(*after, process)
        waiting.until(
            lambda: shown(resized) == shown(fresh),
            "the same on both screens",
            deadline_s=DEADLINE_S,
            evidence=lambda: "\n".join([*resized.lines(), "---", *fresh.lines()]),
        )
        assert len(shown(resized)) == COMPARED
        assert max(map(len, resized.lines())) <= after[0]


def test_size_is_that_of_the_terminal_and_not_a_variable(config: dict[str, str]) -> None:
    with watched(config, NARROW, COLUMNS="120", LINES="40") as (terminal, _):
        assert terminal.lines()[0].startswith("default/train: Running")


def test_view_is_drawn_in_place_and_its_end_stays(scripted: Job, config: dict[str, str]) -> None:
    """Nothing is erased first, and the last state stays on the screen of the shell."""
    with watched(config) as (terminal, process):
        scripted.becomes(Response(job("train", phase="Succeeded")))
        assert process.wait(DEADLINE_S) == 0
        until(terminal, "default/train: Succeeded")
    after = terminal.written.partition(terminals.FIRST_SCREEN)[2]
    assert b"default/train: Succeeded" in after
    assert terminal.written.count(terminals.SECOND_SCREEN) == 1
    assert terminals.ERASE_SCREEN not in terminal.written


def test_deleted_job_is_noted_where_it_stays(scripted: Job, config: dict[str, str]) -> None:
    with watched(config) as (terminal, process):
        scripted.becomes(scripted_server.status(404, "NotFound", "train"))
        assert process.wait(DEADLINE_S) == 1
        until(terminal, "the job was deleted")
    after = terminal.written.partition(terminals.FIRST_SCREEN)[2]
    assert b"the job was deleted" in after
    assert b"Running" not in after


def test_problem_is_shown_on_top_until_it_is_over(scripted: Job, config: dict[str, str]) -> None:
    """Also where the terminal has too few lines for the view."""
    with watched(config, TINY) as (terminal, _):
        scripted.becomes(scripted_server.status(503, "away"))
        until(terminal, "trying again")
        scripted.becomes(Response(job("train", phase="Running")))
        waiting.until(
            lambda: terminal.lines()[0].startswith("default/train"),
            "the job on the first line",
            deadline_s=DEADLINE_S,
        )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_terminal_is_left_as_it_was(config: dict[str, str], number: signal.Signals) -> None:
    with watched(config) as (terminal, process):
        process.send_signal(number)
        assert process.wait(DEADLINE_S) == 128 + number
        waiting.until(
            lambda: terminals.FIRST_SCREEN in terminal.written, "the first screen", deadline_s=5
        )
    assert terminal.written.rfind(terminals.CURSOR) > terminal.written.rfind(terminals.NO_CURSOR)


def test_suspended_command_gives_the_terminal_back(config: dict[str, str]) -> None:
    with watched(config) as (terminal, process):
        process.send_signal(signal.SIGTSTP)
        waiting.until(
            lambda: os.waitpid(process.pid, os.WUNTRACED | os.WNOHANG)[0],
            "the command is suspended",
            deadline_s=DEADLINE_S,
        )
        waiting.until(
            lambda: terminals.FIRST_SCREEN in terminal.written, "the first screen", deadline_s=5
        )
        process.send_signal(signal.SIGCONT)
        waiting.until(
            lambda: terminal.written.count(terminals.SECOND_SCREEN) == 2,
            "the second screen again",
            deadline_s=DEADLINE_S,
        )
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 128 + signal.SIGTERM


def test_dumb_terminal_gets_a_line_for_each_change(scripted: Job, config: dict[str, str]) -> None:
    command = ("-m", "railwright_cli", "status", "-w", "train")
    with terminals.running(*command, environment=config | {"TERM": "dumb"}) as (terminal, process):
        until(terminal, "Running")
        scripted.becomes(Response(job("train", phase="Succeeded")))
        assert process.wait(DEADLINE_S) == 0
        until(terminal, "Succeeded")
