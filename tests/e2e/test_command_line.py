"""``railwright logs`` and ``status`` of jobs that run on real nodes, across their attempts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fixtures import command_line, proxy
from fixtures.api_faults import Fault, Reply
from fixtures.proxy import FaultProxy
from fixtures.training import LiveJob, Training, script
from railwright_testbed import ControlPlane, Testbed, waiting

Run = Callable[[Training], LiveJob]

DEADLINE_S = 180

ENDS_IN_ATTEMPT_2 = """
import os, time
attempt = int(os.environ["RAILWRIGHT_ATTEMPT"])
for number in range(10_000 if attempt == 1 else 5):
    print("attempt", attempt, "rank", os.environ["RANK"], "line", number, flush=True)
    time.sleep(0.2)
"""

FAILS_ON_RANK_1 = """
import os, sys, time
time.sleep(5)
if os.environ["RANK"] == "1":
    sys.exit("the answer is not 42")
time.sleep(600)
"""

FAILS_ONCE_ON_RANK_1 = """
import os, sys, time
attempt, rank = os.environ["RAILWRIGHT_ATTEMPT"], os.environ["RANK"]
for number in range(5):
    print("attempt", attempt, "rank", rank, "line", number, flush=True)
if attempt == "1":
    sys.exit("the answer is not 42") if rank == "1" else time.sleep(600)
"""


def test_followed_logs_go_on_in_the_next_attempt(bed: Testbed, run: Run, tmp_path: Path) -> None:
    """Of four ranks on two nodes one is followed: each of its lines is printed once, in order,
    though connections break and the API server is away for a while."""
    job = run(Training("job", script(ENDS_IN_ATTEMPT_2), nodes=2, processes=2))
    plane, output = bed.control_plane, tmp_path / "logs"
    options = ("logs", "--follow", "--rank", "3", "job", "-n", job.namespace)

    def until_line(number: int) -> None:
        line = f"line {number}\n"
        waiting.until(lambda: line in output.read_text(), line, deadline_s=DEADLINE_S)

    with (
        proxy.beside(plane) as between,
        command_line.running(_administrator(plane, between), output, *options) as logs,
    ):
        for number in (5, 15):
            until_line(number)
            between.fail("get pods/log", Reply(502))
            between.fail("get trainingjobs", Fault.REPLY_LOST)
            between.cut_streams()
        until_line(25)
        plane.kubectl("-n", job.namespace, "delete", "pod", "job-worker-0-1", "--wait=false")
        assert logs.wait(DEADLINE_S) == 0
    lines = [line for line in output.read_text().splitlines() if " line " in line]
    first = [line for line in lines if "attempt 1" in line]
    assert first == [f"[rank 3] attempt 1 rank 3 line {number}" for number in range(len(first))]
    assert len(first) > 25
    second = [f"[rank 3] attempt 2 rank 3 line {number}" for number in range(5)]
    assert lines == [*first, *second]
    assert job.status()["phase"] == "Succeeded"
    place = ("job", "-n", job.namespace)
    assert command_line.printed(plane.kubeconfig, "status", "--watch", *place)
    before = command_line.run(plane.kubeconfig, "logs", "--previous", *place)
    assert before.returncode == 0
    assert "attempt 1 ended: PodDeleted: " in before.stderr
    every = command_line.printed(plane.kubeconfig, "logs", "--all-attempts", "--rank", "0", *place)
    assert "[rank 0] attempt 2 rank 0 line 4\n" in every
    assert "[rank 1]" not in every


def test_followed_failure_ends_with_code_1(bed: Testbed, run: Run, tmp_path: Path) -> None:
    job = run(
        Training("fails", script(FAILS_ON_RANK_1), spec={"failurePolicy": {"backoffLimit": 0}})
    )
    kubeconfig, place = bed.control_plane.kubeconfig, ("fails", "-n", job.namespace)
    output, view = tmp_path / "logs", tmp_path / "status"
    with (
        command_line.running(kubeconfig, output, "logs", "-f", "--rank", "1", *place) as logs,
        command_line.running(kubeconfig, view, "status", "-w", *place) as status,
    ):
        assert logs.wait(DEADLINE_S) == 1
        assert status.wait(DEADLINE_S) == 1
    assert "the answer is not 42" in output.read_text()
    assert "the job failed: rank 1 on" in output.read_text()
    assert " Running" in view.read_text()
    assert "Failed, RankFailed: rank 1 on" in view.read_text()
    # The pod of rank 0 ran on, so it is deleted; that of rank 1 may have ended before, and stay.
    waiting.until(
        lambda: "fails-worker-0-1" not in {pod["metadata"]["name"] for pod in job.pods()},
        "the first pod deleted",
        deadline_s=60,
    )
    later = command_line.run(kubeconfig, "logs", *place)
    assert later.returncode == 0
    assert "the answer is not 42" in later.stdout


def test_lines_of_a_failed_rank_stay_in_the_next_attempt(bed: Testbed, run: Run) -> None:
    """They are in the log of its pod if that had ended when the attempt did, else the status has
    the last of them; the pod of the other rank ran on, and is deleted. A container's two outputs
    reach the log by two pipes, so the failure may stand before lines that were printed first."""
    job = run(Training("again", script(FAILS_ONCE_ON_RANK_1)))
    job.until_phase("Succeeded", deadline_s=DEADLINE_S)
    assert job.status()["attempt"] == 2

    def logs(*options: str) -> tuple[list[str], str]:
        arguments = ("logs", "again", "-n", job.namespace, *options)
        ended = command_line.run(bed.control_plane.kubeconfig, *arguments)
        assert ended.returncode == 0, ended.stderr
        lines = [line for line in ended.stdout.splitlines() if "railwright:" not in line]
        return sorted(lines), ended.stderr

    first, second = (
        [f"attempt {attempt} rank 1 line {number}" for number in range(5)] for attempt in (1, 2)
    )
    failure = "the answer is not 42"
    assert sorted([failure, *second, *first]) == [*first, *second, failure]
    assert logs("--previous", "--rank", "1")[0] == [*first, failure]
    assert logs("--all-attempts", "--rank", "1")[0] == [*first, *second, failure]
    assert logs("--rank", "1", "--since", "1d")[0] == second
    assert logs("--rank", "1", "--tail", "2")[0] == second[-2:]
    assert logs("--rank", "1", "--tail", "0")[0] == []
    waiting.until(
        lambda: "again-worker-0-1" not in {pod["metadata"]["name"] for pod in job.pods()},
        "the pod of rank 0 deleted",
        deadline_s=60,
    )
    lines, notes = logs("--previous", "--rank", "0")
    assert lines == [*first, failure]
    assert "attempt 1 ended: RankFailed: " in notes
    assert "the last lines of rank 1 that failed first:" in notes
    every = logs("--all-attempts", "--rank", "0")[0]
    assert every == [*first, *(line.replace("rank 1", "rank 0") for line in second), failure]


def _administrator(plane: ControlPlane, between: FaultProxy) -> Path:
    """The kubeconfig of somebody who may do anything, through a proxy."""
    grant = ("create", "clusterrolebinding", "cli", "--clusterrole=cluster-admin")
    plane.kubectl(*grant, "--serviceaccount=kube-system:default")
    return plane.kubeconfig_for_service_account("kube-system", "default", through=between.entrance)
