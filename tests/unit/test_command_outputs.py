"""What commands print of what they did to jobs, of jobs that run, and of devices."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
import yaml

from fixtures.command import run
from fixtures.scripted_server import NAMESPACED, Request, Response, Serve, in_turn, job, status
from railwright_cli import queue, why
from railwright_cli.api_objects import (
    ConditionView,
    JobStatusView,
    JobView,
    MetadataView,
    PlacementSpecView,
    PlacementView,
)
from railwright_cli.jobs import Queued
from railwright_cli.tables import show_document, show_result, show_rows

START = datetime(2026, 1, 1, tzinfo=UTC)
DOCUMENT = {"namespace": "team", "name": "a", "result": "deleted"}


def test_results_are_lines_names_or_documents(capsys: pytest.CaptureFixture[str]) -> None:
    """Documents of several jobs can be read one after the other."""
    printed = []
    for output in ("text", "name", "json", "yaml"):
        for _ in range(2):
            show_result("team/a deleted", "a", DOCUMENT, output)
        printed.append(capsys.readouterr().out)
    assert printed[0] == "team/a deleted\n" * 2
    assert printed[1] == "trainingjob.railwright.dev/a\n" * 2
    first, end = json.JSONDecoder().raw_decode(printed[2])
    assert (first, json.loads(printed[2][end:])) == (DOCUMENT, DOCUMENT)
    assert [*yaml.safe_load_all(printed[3])] == [DOCUMENT] * 2


def test_running_job_has_its_run_time_and_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    """A job that starts again runs from when its new attempt does."""
    since = datetime.now(UTC) - timedelta(hours=2, seconds=1)
    runs = ConditionView("Running", "True", "Running", last_transition_time=since)
    metadata = MetadataView("a", "team", "u", START)
    status = JobStatusView(phase="Running", attempt=2, nodes=2, conditions=(runs,))
    placed = PlacementView(PlacementSpecView(("n1", "n2")), MetadataView("a-2", "team"))
    nodes = queue.nodes_by_placement([placed])
    row = queue.row(Queued(JobView(metadata, status=status), 0, None), nodes)
    assert (row["runningSince"], row["nodeList"]) == (since, "n[1-2]")
    starts = JobStatusView(
        phase="Starting", attempt=3, conditions=(ConditionView("Running", "False"),)
    )
    other = queue.row(Queued(JobView(metadata, status=starts), 0, None), nodes)
    assert other["runningSince"] is other["nodeList"] is None
    show_rows([row, other], "table", "", wide=("nodeList", "message"))
    head, first, second = capsys.readouterr().out.splitlines()
    at = head.index("TIME")
    assert (first[at:].split()[0], second[at:].split()[0]) == ("2h", "-")
    assert "NODE LIST" not in head


@pytest.mark.parametrize("trains", ["worker", None])
def test_status_has_the_checkpoint_of_what_trains(
    trains: str | None, serve: Serve, capsys: pytest.CaptureFixture[str]
) -> None:
    """The groups are in the order of their names. Two pods of it share a node."""
    points = [("evaluator", 2, 12), ("worker", 1, 5000), ("evaluator", 1, 8)]
    stored = [{"group": g, "attempt": a, "step": s} for g, a, s in points]
    found = job("a", phase="Running", attempt=2, nodes=2, checkpoints=stored)
    found["spec"] = {"roles": [{"name": "worker"}, {"name": "evaluator"}]}
    found["spec"] |= {"workload": {"role": trains}} if trains else {}
    placement = {"metadata": {"name": "a-2"}, "spec": {"nodes": ["n1", "n2", "n1"]}}

    def respond(request: Request) -> Response:
        return Response(placement if "placements" in request.path else found)

    serve(respond)
    assert run("status", "a") == 0
    shown = capsys.readouterr().out
    assert "checkpoint: step 5000 of attempt 1" in shown
    assert "2 nodes: n1 n2\n" in shown
    assert run("status", "a", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["checkpointStep"] == 5000


def test_waiting_job_has_a_table_of_its_devices() -> None:
    job = JobView(MetadataView("a", "team", "u", START), status=JobStatusView(reason="R"))
    device = {"device": "nvidia.com/gpu", "requested": 16, "free": 9, "available": 4, "inUse": 16}
    more = {"unusable": 7, "heldBy": ["8 t/a", "2 others"]}
    lines = [*why.lines(job, [], START, [device | more])]
    assert lines[-2:] == [
        "DEVICE           REQUESTED   FREE   AVAILABLE   IN USE   UNUSABLE   HELD BY",
        "nvidia.com/gpu   16          9      4           16       7          8 t/a,2 others",
    ]


@pytest.mark.parametrize(
    ("queue_name", "message"),
    [
        ("trainig", " in queue trainig; the nearest is 'training'"),
        ("training", " in queue training"),
        ("xyz", " in queue xyz"),
    ],
)
def test_queue_without_jobs_is_named(
    serve: Serve, queue_name: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A queue of the name may have jobs of other namespaces."""
    found = job("a", phase="Queued")
    found["metadata"]["namespace"] = "other"
    found["spec"]["queue"] = "training"
    serve(
        lambda request: Response(
            {"metadata": {}, "items": [] if "priority" in request.path else [found]}
        )
    )
    assert run("queue", "--queue", queue_name) == 0
    assert capsys.readouterr().err == f"no job runs or waits in namespace default{message}\n"


@pytest.mark.parametrize(
    ("then", "line"),
    [("Running", "default/a is Running"), ("Queued", "Queue: position 1 of 1, in queue default")],
)
def test_job_may_start_or_end_between_requests(
    serve: Serve, then: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is read first, then the queue, then the job once more for its devices."""
    reads = in_turn(Response(job("a", phase="Queued")), status(404, "NotFound", "a"))

    def respond(request: Request) -> Response:
        if request.path == f"{NAMESPACED}/a":
            return reads(request)
        is_list = request.path.endswith("/trainingjobs")
        return Response({"metadata": {}, "items": [job("a", phase=then)] if is_list else []})

    serve(respond)
    assert run("why", "a") == 0
    printed = capsys.readouterr().out
    assert line in printed
    assert "positions are unknown" not in printed


def test_json_has_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    """Terminals act on some of them. Other characters are as they are."""
    document = {"message": "\x1b\x7f\x85\x9b31m é\\"}
    show_document(document, "json")
    printed = capsys.readouterr().out
    assert "\\u001b\\u007f\\u0085\\u009b31m é" in printed
    assert json.loads(printed) == document


@pytest.mark.parametrize("command", [("status", "a"), ("why", "a"), ("info",), ("doctor",)])
def test_wide_output_without_more_columns_is_the_table(
    command: tuple[str, ...], serve: Serve, capsys: pytest.CaptureFixture[str]
) -> None:
    def respond(request: Request) -> Response:
        if request.path == f"{NAMESPACED}/a":
            return Response(job("a", phase="Running"))
        is_list = request.path.endswith(("/nodes", "/nodehealths", "/pods"))
        return Response({"metadata": {}}) if is_list else status(403, "Forbidden", "it")

    serve(respond)
    printed = []
    for output in ((), ("-o", "wide")):
        assert run(*command, *output) == 0
        printed.append(capsys.readouterr())
    assert printed[0] == printed[1] != ("", "")


@pytest.mark.parametrize(
    "command", ["topology", "explain", "submit", "cancel", "suspend", "resume"]
)
def test_wide_output_of_no_table_is_refused(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command, "a", "-o", "wide") == 2
    assert "'wide' is not one of" in capsys.readouterr().err
