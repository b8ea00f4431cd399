"""What commands print of what they did to jobs, of jobs that run, and of devices."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
import yaml

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
from railwright_cli.tables import show_result, show_rows

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


def test_waiting_job_has_a_table_of_its_devices() -> None:
    job = JobView(MetadataView("a", "team", "u", START), status=JobStatusView(reason="R"))
    device = {"device": "nvidia.com/gpu", "requested": 16, "free": 9, "available": 4, "inUse": 16}
    more = {"unusable": 7, "heldBy": ["8 t/a", "2 others"]}
    lines = [*why.lines(job, [], START, [device | more])]
    assert lines[-2:] == [
        "DEVICE           REQUESTED   FREE   AVAILABLE   IN USE   UNUSABLE   HELD BY",
        "nvidia.com/gpu   16          9      4           16       7          8 t/a,2 others",
    ]
