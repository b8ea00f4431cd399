"""Parts of ``railwright`` that need no cluster: tables, advice, arguments, the view of a job."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from fixtures.command import run
from railwright_cli import kubeconfig, submit, tables
from railwright_cli.advice import WHAT_TO_DO
from railwright_cli.api_objects import JobProgress, JobStatusView, JobView, MetadataView
from railwright_cli.status import StatusView
from railwright_cli.tables import Column, Row, duration, lines, show_rows

GLOSSARY = Path(__file__).resolve().parents[2] / "docs/glossary.md"
COLUMNS = (Column("NAME", "name"), Column("NODES", "nodes"), Column("HARDWARE", "hw", is_wide=True))
ROWS: list[Row] = [
    {"name": "a", "nodes": 3, "hw": None},
    {"name": "longer", "nodes": None, "hw": ["x", "y"]},
]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-3, "0s"),
        (0, "0s"),
        (59.9, "59s"),
        (60, "1m"),
        (61, "1m1s"),
        (7205, "2h"),
        (90_000, "1d1h"),
    ],
)
def test_durations_have_two_units_at_most(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


def test_table_is_aligned_and_has_no_control_characters() -> None:
    rows = [*ROWS, {"name": "\x1b[31mred\nline\x9b", "nodes": 1}]
    assert lines(COLUMNS[:2], rows) == [
        "NAME             NODES",
        "a                3",
        "longer           -",
        " [31mred line    1",
    ]


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_documents_have_all_fields(
    output: tables.Output, capsys: pytest.CaptureFixture[str]
) -> None:
    made = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    show_rows(COLUMNS, [*ROWS, {"name": "é", "made": made}], output, "nothing")
    printed = capsys.readouterr().out
    found = json.loads(printed) if output == "json" else yaml.safe_load(printed)
    assert found == [*ROWS, {"name": "é", "made": "2026-01-02T03:04:05+00:00"}]


def test_wide_columns_are_shown_when_requested(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(COLUMNS, ROWS, "wide", "nothing")
    show_rows(COLUMNS, ROWS, "table", "nothing")
    show_rows(COLUMNS, [], "table", "no nodes")
    printed = capsys.readouterr()
    assert printed.out.splitlines()[2].endswith("x,y")
    assert printed.out.count("HARDWARE") == 1
    assert printed.err == "no nodes\n"


def test_advice_is_that_of_the_glossary() -> None:
    section = GLOSSARY.read_text().split("## Why a job waits")[1].split("\n## ")[0]
    rows = (line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("| `"))
    written = {
        reason.strip(" `"): re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", advice).replace("`", "").strip()
        for reason, _, advice in rows
    }
    assert written == WHAT_TO_DO


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["queu"], "there is no command 'queu'; the nearest is 'queue'"),
        (["why", "a/b/c"], "'a/b/c' is neither NAME nor NAMESPACE/NAME of a job"),
        (["why", "a/b", "-n", "c"], "a/b is in namespace a, and --namespace is c"),
        (["cancel", "."], "'.' is neither NAME nor NAMESPACE/NAME of a job"),
        (["cancel", "trai?"], "'trai?' is neither NAME nor NAMESPACE/NAME of a job"),
        (["cancel", "team/#x"], "'team/#x' is neither NAME nor NAMESPACE/NAME of a job"),
        (["submit", "-f", "x", "--queue", "q"], "--file has the whole job"),
        (
            ["submit", "--image", "x", "--limits", "a/gpu=8,b/nic=1", "--", "true"],
            "--limits has several kinds of devices: --processes says how many ranks",
        ),
        (["submit"], "expected either --file or a command after --"),
        (["submit", "--", "python", "x.py"], "a command needs --image: the image that it runs in"),
        (
            ["logs", "a", "--previous", "-f"],
            "--previous is of one attempt: use it without --follow",
        ),
        (["submit", "--image", "x", "--limits", "gpu", "--", "true"], "'gpu' is not NAME=VALUE"),
    ],
)
def test_misuse_is_refused_with_what_would_work(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty: expected a TrainingJob"),
        ("kind: Pod", "has a Pod: expected a TrainingJob (use kubectl apply)"),
        ("[1, 2]", "has a list: expected a TrainingJob"),
        ("a: b: c", "mapping values are not allowed here"),
        ("{kind: TrainingJob, metadata: train}", "metadata is no mapping"),
        ("&a {kind: TrainingJob, spec: *a}", "Circular reference"),
        ("{kind: TrainingJob, spec: !!binary aGk=}", "not JSON serializable"),
    ],
)
def test_file_without_jobs_is_refused(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "job.yaml").write_text(text)
    assert run("submit", "-f", str(tmp_path / "job.yaml")) == 2
    assert message in capsys.readouterr().err


def test_missing_kubeconfig_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert run("queue") == 2
    assert f"no cluster: {tmp_path / 'none'}" in capsys.readouterr().err


def test_first_of_several_kubeconfigs_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in kubectl. A context that is named needs no current one."""
    for name, current in (("a", ""), ("b", "on-b"), ("c", "on-c")):
        (tmp_path / name).write_text(yaml.safe_dump(_kubeconfig(name, current)))
    monkeypatch.setenv(
        "KUBECONFIG", ":".join(str(tmp_path / name) for name in ("a", "no", "b", "c"))
    )
    found = kubeconfig.read("")
    assert (found.configuration.host, found.namespace) == ("https://b.example.com", "team-b")
    found = kubeconfig.read("on-c")
    assert (found.configuration.host, found.namespace) == ("https://c.example.com", "team-c")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "a"))
    assert kubeconfig.read("on-a").namespace == "team-a"
    assert run("queue") == 2
    assert "no context is current; there are: on-a" in capsys.readouterr().err
    assert run("queue", "--context", "x") == 2
    assert "there is no context 'x'; there are: on-a" in capsys.readouterr().err
    (tmp_path / "a").write_text("{")
    assert run("queue") == 2
    assert f"no cluster: {tmp_path / 'a'}" in capsys.readouterr().err


def test_submitted_yaml_is_read_as_kubectl_does(tmp_path: Path) -> None:
    text = "{kind: TrainingJob, a: 12:30, b: 2026-01-01, c: -7, d: 0x10}"
    (tmp_path / "job.yaml").write_text(text)
    (found,) = submit.read(str(tmp_path / "job.yaml"))
    assert found["a"] == "12:30"
    assert found["b"] == "2026-01-01"
    assert (found["c"], found["d"]) == (-7, 16)


def test_remaining_time_follows_from_the_steps_seen() -> None:
    view = StatusView(_at(10))
    for step, now_s in ((10, 100.0), (20, 120.0)):
        view.update(_at(step), now_s)
    assert view.line().endswith("step 20 of 60, about 1m20s remain")
    view.update(_at(15, attempt=2), 130.0)
    assert "remain" not in view.line()
    view.update(_at(16, attempt=2), 131.0)
    assert view.line().endswith("about 44s remain")


def _at(step: int, *, attempt: int = 1) -> JobView:
    progress = JobProgress(step=step, total_steps=60)
    status = JobStatusView(phase="Running", reason="Running", attempt=attempt, progress=progress)
    return JobView(MetadataView("a", "team"), status=status)


def _kubeconfig(name: str, current: str) -> dict[str, Any]:
    cluster = {"server": f"https://{name}.example.com"}
    context = {"cluster": name, "user": name, "namespace": f"team-{name}"}
    found = {
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": {"token": "t"}}],
        "contexts": [{"name": f"on-{name}", "context": context}],
    }
    return found | ({"current-context": current} if current else {})
