"""What a user's own mistakes come to, on real nodes: restarts, a budget, and an explanation."""

from __future__ import annotations

from collections.abc import Callable

from fixtures.training import LiveJob, Training, script
from railwright_testbed import waiting

Run = Callable[[Training], LiveJob]

FAILS_ON_RANK_1 = """
import os, sys, time
if os.environ["RANK"] == "1":
    print("the answer is not 42")
    sys.exit(3)
time.sleep(600)
"""

TELLS_ITS_WORLD = """
import os
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
print(" ".join(name + "=" + os.environ[name] for name in names))
"""


def test_failed_rank_fails_job_with_rank_code_and_output(run: Run) -> None:
    """The status has the rank, its exit code and its last lines."""
    job = run(
        Training("fails", script(FAILS_ON_RANK_1), spec={"failurePolicy": {"backoffLimit": 0}})
    )
    status = job.until_phase("Failed")
    end = status["lastTermination"]
    assert (end["cause"], end["rank"], end["exitCode"]) == ("RankFailed", 1, 3), end
    assert "the answer is not 42" in end["lastLines"]
    assert status["failures"] == 1
    waiting.until(
        lambda: job.events()[-2:] == ["RankFailed", "Failed"], "its last events", deadline_s=20
    )


def test_the_budget_is_spent_one_attempt_at_a_time(run: Run) -> None:
    job = run(
        Training("budget", script(FAILS_ON_RANK_1), spec={"failurePolicy": {"backoffLimit": 1}})
    )
    status = job.until_phase("Failed")
    assert (status["attempt"], status["failures"], status["restarts"]) == (2, 2, 1)


def test_a_job_without_the_sdk_runs_and_its_logs_stay(run: Run) -> None:
    job = run(Training("plain", script(TELLS_ITS_WORLD), processes=2))
    job.until_phase("Succeeded")
    lines = job.logs(1, 0).splitlines() + job.logs(1, 1).splitlines()
    ranks = {line.split("RANK=")[1].split()[0] for line in lines if " WORLD_SIZE=4 " in line}
    assert ranks == {"0", "1", "2", "3"}, lines


def test_image_pull_failure_is_published(run: Run) -> None:
    job = run(Training("no-image", script("pass"), image="localhost:1/absent:1"))
    status = job.until(
        lambda status: status.get("reason") in ("ErrImagePull", "ImagePullBackOff"),
        "the pull error as the reason",
    )
    assert "localhost:1/absent:1" in status["message"]
    assert status["phase"] == "Starting"
    job.delete()
