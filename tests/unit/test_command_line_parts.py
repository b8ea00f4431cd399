"""Parts of ``railwright`` that need no cluster: tables, advice, arguments, the view of a job."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from fixtures.command import run
from railwright_cli import kubeconfig, submit, tables, why
from railwright_cli.api_objects import (
    ConditionView,
    JobProgress,
    JobSpecView,
    JobStatusView,
    JobView,
    JobWorkloadView,
    LastTermination,
    MetadataView,
    TrainingView,
)
from railwright_cli.errors import RequestError
from railwright_cli.inventory import NodeSpecView, NodeStatusView, NodeView, TaintView, node_use
from railwright_cli.jobs import UNSCHEDULABLE, Queued, ordered
from railwright_cli.status import StatusView
from railwright_cli.tables import Row, duration, lines, show_rows

START = datetime(2026, 1, 1, tzinfo=UTC)
GLOSSARY = Path(__file__).resolve().parents[2] / "docs/glossary.md"
ROWS: list[Row] = [
    {"name": "a", "nodes": 3, "allDevices": None},
    {"name": "longer", "nodes": None, "allDevices": ["x", "y"]},
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
    assert lines(("name", "nodes"), rows) == [
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
    show_rows([*ROWS, {"name": "é", "made": made}], output, "nothing")
    printed = capsys.readouterr().out
    found = json.loads(printed) if output == "json" else yaml.safe_load(printed)
    assert found == [*ROWS, {"name": "é", "made": "2026-01-02T03:04:05+00:00"}]


def test_wide_columns_are_shown_when_requested(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(ROWS, "wide", "nothing", wide=("allDevices",))
    show_rows(ROWS, "table", "nothing", wide=("allDevices",))
    show_rows([], "table", "no nodes", wide=("allDevices",))
    printed = capsys.readouterr()
    assert printed.out.splitlines()[2].endswith("x,y")
    assert printed.out.count("ALL DEVICES") == 1
    assert printed.err == "no nodes\n"


def test_advice_is_that_of_the_glossary() -> None:
    section = GLOSSARY.read_text().split("## Why a job waits")[1].split("\n## ")[0]
    rows = (line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("| `"))
    written = {
        reason.strip(" `"): re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", advice).replace("`", "").strip()
        for reason, _, advice in rows
    }
    assert written == why.WHAT_TO_DO


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["queu"], "there is no command 'queu'; the nearest is 'queue'"),
        (["help"], "there is no command 'help'; there are submit, queue, "),
        (["why", "a/b/c"], "'a/b/c' is neither NAME nor NAMESPACE/NAME of a job"),
        (["why", "a/b", "-n", "c"], "a/b is in namespace a, and --namespace is c"),
        (["cancel", "."], "'.' is neither NAME nor NAMESPACE/NAME of a job"),
        (["cancel", "trai?"], "'trai?' is neither NAME nor NAMESPACE/NAME of a job"),
        (["cancel", "team/#x"], "'team/#x' is neither NAME nor NAMESPACE/NAME of a job"),
        (["submit", "-f", "x", "--queue", "q"], "--file has the whole job"),
        (
            ["submit", "--image", "x", "--limits", "a/gpu=8,b/npu=1", "--", "true"],
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
    assert (found.client.configuration.host, found.namespace) == ("https://b.example.com", "team-b")
    found = kubeconfig.read("on-c")
    assert (found.client.configuration.host, found.namespace) == ("https://c.example.com", "team-c")
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


def test_remaining_time_follows_from_whole_steps() -> None:
    """The first step that is seen may end at once, and what changes between steps says nothing."""
    view = StatusView(_at(10))
    for step, now_s in ((10, 100.0), (11, 101.0)):
        view.update(_at(step), now_s)
        assert "remain" not in view.line()
    for step, now_s in ((12, 131.0), (13, 161.0), (13, 190.0)):
        view.update(_at(step), now_s)
    assert view.line().endswith("step 13 of 60, about 23m30s remain")
    for step in (15, 16):
        view.update(_at(step, attempt=2), 200.0 + step)
        assert "remain" not in view.line()
    view.update(_at(18, attempt=2), 218.0)
    assert view.line().endswith("about 42s remain")
    for step, now_s in ((17, 219.0), (18, 220.0)):  # It goes back to a checkpoint.
        view.update(_at(step, attempt=2), now_s)
        assert "remain" not in view.line()
    view.update(_at(19, attempt=2), 222.0)
    assert view.line().endswith("about 1m22s remain")
    view.update(_at(18, attempt=2, phase="Recovering"), 240.0)
    view.update(_at(18, attempt=2), 1_000.0)
    assert "remain" not in view.line()


def test_remaining_time_of_one_read_follows_from_samples() -> None:
    """Of a job that states how many samples a step has, whose script reports the others."""
    stated = JobSpecView(workload=JobWorkloadView(TrainingView(global_batch=64)))
    for samples, spec, remain in (
        ("32", stated, 100.0),
        (None, stated, None),
        ("0", stated, None),
        ("32", JobSpecView(), None),
    ):
        progress = JobProgress(step=10, total_steps=60, samples_per_second=samples)
        for phase, remain_s in (("Running", remain), ("Recovering", None)):
            status = JobStatusView(phase=phase, progress=progress)
            view = StatusView(JobView(MetadataView("a", "team"), spec, status))
            assert view.document()["remainingSeconds"] == remain_s
            shown = any("about 1m40s remain" in line for line in view.lines())
            assert shown is (remain_s is not None)


def test_state_of_a_job_is_explained_from_its_cause_on() -> None:
    """The time is that of the last change of the phase; what a program printed is not trusted."""
    now = START + timedelta(days=3)
    waited = ConditionView("Running", "False", "AtBarrier", last_transition_time=START)
    placed = now - timedelta(seconds=10)
    scheduled = ConditionView("Scheduled", "True", "Placed", last_transition_time=placed)
    silent = ConditionView("Healthy", "False", "LauncherSilent", "no heartbeat from n1")
    lines = "\n".join(f"line {number}\x1b[2J" for number in range(20))
    ended = LastTermination(1, "RankFailed", "rank 3 failed", "n1", 3, 7, None, lines, placed)
    status = JobStatusView(
        phase="Starting",
        reason="AtBarrier",
        message="1 of 2 node ranks",
        conditions=(waited, scheduled, silent),
        last_termination=ended,
    )
    shown = [*why.lines(JobView(MetadataView("a", "team"), status=status), [], now)]
    assert shown[:5] == [
        "team/a is Starting: AtBarrier, for 10s",
        "  1 of 2 node ranks",
        "  Not healthy: LauncherSilent: no heartbeat from n1",
        "",
        "Attempt 1 ended, 10s ago: RankFailed: rank 3 failed",
    ]
    assert shown[5] == "  First failure: rank 3, on node n1, exit code 7"
    assert shown[6:] == [f"  | line {number} [2J" for number in range(10, 20)]


def test_jobs_ahead_are_those_before_in_the_queue() -> None:
    jobs = [
        JobView(MetadataView(f"j{n}", "team", f"u{n}", START), status=JobStatusView(reason="R"))
        for n in range(8)
    ]
    queued = [Queued(job, 5, at + 1) for at, job in enumerate(jobs)]
    shown = [*why.lines(jobs[7], queued, START + timedelta(minutes=2))]
    assert shown[-7] == "Queue: position 8 of 8, in queue default, priority 5"
    assert shown[-6] == "  1. team/j0: 0 nodes, priority 5, 2m old, R"
    assert shown[-1] == "  and 2 more: railwright queue -A"
    assert [*why.lines(jobs[0], queued, START)][-1] == (
        "Queue: position 1 of 8, in queue default, priority 5"
    )
    unknown = [Queued(jobs[0], None, None)]
    assert [*why.lines(jobs[0], unknown, START)][-1].endswith("positions are unknown")


@pytest.mark.parametrize(
    ("status", "suspend", "advice"),
    [
        (JobStatusView(), False, "The operator has not handled the job as it is now."),
        (JobStatusView(1, "Queued", "Unreadable"), False, "Correct the field"),
        (JobStatusView(2, "Running", "Unreadable"), False, "Correct the field"),
        (JobStatusView(2, "Suspended", "Unreadable"), False, "Correct the field"),
        (JobStatusView(2, "Suspended", "Suspended"), True, "railwright resume team/a"),
        (JobStatusView(1, "Suspended", "Suspended"), False, "The operator has not handled"),
    ],
)
def test_advice_fits_the_state(status: JobStatusView, suspend: bool, advice: str) -> None:
    job = JobView(MetadataView("a", "team", generation=2), JobSpecView(suspend=suspend), status)
    (found,) = [line for line in why.lines(job, [], START) if "What to do" in line]
    assert found.startswith(f"  What to do: {advice}")


def test_jobs_that_cannot_get_nodes_have_no_position() -> None:
    jobs = [
        JobView(MetadataView(reason, "team", f"u{at}", START), status=JobStatusView(reason=reason))
        for at, reason in enumerate([*sorted(why.WHAT_TO_DO), "Later"])
    ]
    without = {each.job.metadata.name for each in ordered(jobs, ()) if each.position is None}
    assert without == UNSCHEDULABLE
    assert "QueueNotFound" in without


@pytest.mark.parametrize("code", [0, 410, 429, 500, 503, 504])
def test_errors_of_servers_and_connections_are_temporary(code: int) -> None:
    assert RequestError(code, "").is_temporary


@pytest.mark.parametrize("code", [400, 401, 403, 409, 422])
def test_refusals_are_not_temporary(code: int) -> None:
    assert not RequestError(code, "").is_temporary


READY = (ConditionView("Ready", "True"),)
GPUS = {"nvidia.com/gpu": "8", "rdma/hca": "64", "cpu": "9"}


@pytest.mark.parametrize(
    ("spec", "status", "state", "is_available"),
    [
        (NodeSpecView(), NodeStatusView(GPUS, GPUS, READY), "Ready", True),
        (NodeSpecView(), NodeStatusView(GPUS, GPUS), "NotReady", False),
        (
            NodeSpecView(),
            NodeStatusView(GPUS, GPUS, (ConditionView("Ready", "Unknown"),)),
            "NotReady",
            False,
        ),
        (NodeSpecView(unschedulable=True), NodeStatusView(GPUS, GPUS, READY), "Cordoned", False),
        (
            NodeSpecView(taints=(TaintView("dedicated", "NoSchedule"),)),
            NodeStatusView(GPUS, GPUS, READY),
            "Tainted",
            True,
        ),
        (
            NodeSpecView(taints=(TaintView("nvidia.com/gpu", "NoSchedule"),)),
            NodeStatusView(GPUS, GPUS, READY),
            "Ready",
            True,
        ),
        (
            NodeSpecView(taints=(TaintView("dedicated", "PreferNoSchedule"),)),
            NodeStatusView(GPUS, GPUS, READY),
            "Ready",
            True,
        ),
        (
            NodeSpecView(),
            NodeStatusView(GPUS, GPUS | {"nvidia.com/gpu": "0"}, READY),
            "NoDevices",
            False,
        ),
        (NodeSpecView(), NodeStatusView(GPUS, GPUS | {"rdma/hca": "0"}, READY), "Ready", True),
        (NodeSpecView(), NodeStatusView({"a/b": "1500m"}, {"a/b": "1500m"}, READY), "Ready", True),
    ],
)
def test_node_state_names_what_keeps_pods_away(
    spec: NodeSpecView, status: NodeStatusView, state: str, is_available: bool
) -> None:
    use = node_use(NodeView(MetadataView("n"), spec, status))
    assert (use.state, use.is_available) == (state, is_available)


@pytest.mark.parametrize(
    ("used", "use"),
    [
        ({}, "Free"),
        ({"rdma/hca": 1}, "Free"),
        ({"nvidia.com/gpu": 1, "rdma/hca": 64}, "Partly"),
        ({"nvidia.com/gpu": 8}, "Full"),
        ({"nvidia.com/gpu": 9}, "Full"),
        (None, None),
    ],
)
def test_use_of_a_node_is_that_of_its_accelerators(
    used: dict[str, int] | None, use: str | None
) -> None:
    found = node_use(NodeView(MetadataView("n"), status=NodeStatusView(GPUS, GPUS, READY)))
    found.used = None if used is None else Counter(used)
    assert found.use == use


def _at(step: int, *, attempt: int = 1, phase: str = "Running") -> JobView:
    progress = JobProgress(step=step, total_steps=60)
    status = JobStatusView(phase=phase, reason=phase, attempt=attempt, progress=progress)
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
