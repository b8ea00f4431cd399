"""The progress of long commands: in a terminal alone, and in colour for those who want it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from architecture import tree
from fixtures import terminals
from fixtures.scripted_server import NAMESPACED, Request, Response, Serve, status
from railwright_cli import api_server
from railwright_cli.api_server import ApiServer
from railwright_cli.progress import Show

SLOW = """
import time
from railwright_cli import progress
progress.QUIET_S = 0.1
with progress.shown_progress("reading jobs") as show:
    show(500, 2000, at_most=True)
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
    assert re.search(rb"at most [0-9]+s remain", terminal.written)
    assert terminal.lines() == []
    assert bool(COLOUR.search(terminal.written)) is coloured


def test_nothing_is_drawn_in_a_dumb_terminal() -> None:
    with terminals.running("-c", SLOW, environment={"TERM": "dumb"}) as (terminal, process):
        assert process.wait(30) == 0
    assert b"\x1b" not in terminal.written


SLOW_PART = """
import time
from railwright_cli import devices, explain, feasibility, inventory, profiles, progress, topology
from railwright_cli.__main__ import main
progress.QUIET_S = 0.1
def slowly(*given, part={part}, **named):
    time.sleep(0.5)
    return part(*given, **named)
{part} = slowly
main({arguments})
"""
EXAMPLES = tree.ROOT / "examples"
WORKLOAD = str(EXAMPLES / "workloads/llama3-70b.yaml")
PLAN = str(EXAMPLES / "placed-job/plan.yaml")
JOB = str(EXAMPLES / "first-job.yaml")


def _cluster(request: Request) -> Response:
    """A job that waits, on no nodes but one."""
    stored = yaml.safe_load(Path(JOB).read_text())
    stored["metadata"] |= {
        "namespace": "default",
        "uid": "uid",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    if request.method == "POST" or request.path == f"{NAMESPACED}/first":
        return Response(stored)
    items = {
        "nodes": [{"metadata": {"name": "n0"}}],
        "queues": [{"metadata": {"name": "default"}}],
        "trainingjobs": [stored],
    }
    plural = request.path.rpartition("/")[2]
    if plural == "default":
        return status(404, "NotFound", "default")
    return Response({"metadata": {}, "items": items.get(plural, [])})


@pytest.mark.parametrize(
    ("part", "arguments", "shown"),
    [
        ("explain.step.predict", ["explain", WORKLOAD, "--machine", "DGX H100"], "predicting"),
        ("topology.fabric.of", ["topology", PLAN], "merging sources"),
        ("topology.tree.summary", ["topology", PLAN], "drawing the network"),
        ("profiles._read", ["profile", "."], "reading files of ranks"),
        ("profiles.recorded.merged", ["profile", "none"], "merging them"),
        ("inventory._count_pods_of", ["nodes"], "counting devices of nodes"),
        ("feasibility.scheduler_node", ["why", "first"], "reading what nodes have"),
        ("feasibility.decide_jobs", ["submit", "--dry-run", "-f", JOB], "deciding whether"),
        ("devices.device_rows", ["why", "first"], "comparing nodes with the job"),
    ],
)
def test_work_without_requests_is_shown(
    part: str,
    arguments: list[str],
    shown: str,
    serve: Serve,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two of these fail in the end: what is shown is removed then too."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rank-0.json").write_text("{}")
    serve(_cluster)
    program = SLOW_PART.format(part=part, arguments=arguments)
    with terminals.running("-c", program, environment={}) as (terminal, process):
        process.wait(30)
    assert shown.encode() in terminal.written
    shows = [line for line in terminal.lines() if shown in line]
    assert shows == [], terminal.lines()


PODS = "/api/v1/pods"


@pytest.mark.parametrize("is_shown", [False, True])
def test_list_with_a_selector_is_bounded_by_the_whole_list(
    is_shown: bool, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole list is counted once, and only when progress is on the screen."""
    shows: list[tuple[int, int | None, bool]] = []

    @contextlib.contextmanager
    def shown(what: str) -> Iterator[Show]:
        def show(done: int, total: int | None, *, at_most: bool = False) -> bool:
            shows.append((done, total, at_most))
            return is_shown

        assert what == "reading pods"
        yield show

    monkeypatch.setattr(api_server, "shown_progress", shown)
    server = serve(_pages)
    assert len(ApiServer().items(PODS, dict, {"fieldSelector": "spec.nodeName!="})) == 3
    counts = [each for each in server.requests if each.query["limit"] == "1"]
    assert ["fieldSelector" in each.query for each in counts] == [False] * is_shown
    assert shows == [(1, None, True), (2, 10 if is_shown else None, True)]


def _pages(request: Request) -> Response:
    """Three pods in three pages; without a selector there are ten."""
    if "fieldSelector" not in request.query:
        metadata: dict[str, object] = {"continue": "1", "remainingItemCount": 9}
    else:
        number = int(request.query.get("continue", "0")) + 1
        metadata = {"continue": str(number)} if number < 3 else {}
    return Response({"metadata": metadata, "items": [{}]})
