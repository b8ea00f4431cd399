"""``docs/one-job.md`` names the modules through which one job really goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from architecture import one_job, tree
from fixtures import tracing
from fixtures.clusters import Cluster
from fixtures.tracing import sitecustomize
from fixtures.training import LiveJob, Training

Run = Callable[[Training], LiveJob]
Volume = Callable[[str], dict[str, str]]

TRAIN = Path(__file__).resolve().parents[2] / "examples" / "ddp" / "train.py"
TRACER = str(Path(tracing.__file__).parent)
NAME = "one-job"
STEPS = 30
EVERY = 10


@pytest.fixture
def trace(cluster: Cluster) -> Iterator[Path]:
    """A folder on all nodes, in which traced processes write. The operator is stopped before the
    test, and starts afresh after it."""
    folder = cluster.bed.shared_directory / "trace"
    folder.mkdir()
    cluster.operator.stop()
    yield folder
    cluster.operator.stop()
    cluster.operator.start()


def test_page_names_modules_that_handle_the_job(
    cluster: Cluster,
    run: Run,
    checkpoints: Volume,
    trace: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A job trains on two nodes, loses one, and resumes from its checkpoint on another.

    Operator, launchers and ranks are traced. The page has every module in which a function ran with
    the job's values (``sitecustomize`` says which calls these are), but for what ``NOT_COUNTED``
    names, and no module without a function that ran. So the number of its modules, which the code
    report has as ``one_job_modules``, is the true one.
    """
    environment = {"PYTHONPATH": TRACER, sitecustomize.FOLDER: str(trace)}
    job = run(_training(checkpoints(NAME) | {str(trace): str(trace)}, environment))
    uid = job.object()["metadata"]["uid"]
    (trace / sitecustomize.MARKS).write_text(f"{NAME}\n{uid}\n")
    with monkeypatch.context() as context:
        for name, value in environment.items():
            context.setenv(name, value)
        cluster.operator.start()
    job.until(lambda found: _step(found) >= EVERY + 2, "steps after a checkpoint")
    lost = job.nodes()[1]
    cluster.bed.kill_node(lost)
    try:
        status = job.until_phase("Succeeded")
    finally:
        cluster.bed.restore_node(lost)
    assert (status["attempt"], status["lastTermination"]["lostNodes"]) == (2, [lost])
    ran, handled = _modules(trace)
    page = one_job.counted(set(one_job.modules()))
    missing, unused = one_job.counted(handled) - page, page - ran
    assert not missing, "the page leaves out:\n" + "\n".join(sorted(missing))
    assert not unused, "no function ran of:\n" + "\n".join(sorted(unused))


def _training(volumes: dict[str, str], environment: dict[str, str]) -> Training:
    command = ["python3", str(TRAIN), "--checkpoint-dir=/checkpoints", "--min-step-seconds=0.5"]
    command += [f"--steps={STEPS}", f"--checkpoint-every={EVERY}"]
    return Training(NAME, command, gpus=8, processes=2, volumes=volumes, environment=environment)


def _step(status: dict[str, object]) -> int:
    progress = status.get("progress", {})
    assert isinstance(progress, dict)
    return int(progress.get("step", 0))


def _modules(trace: Path) -> tuple[set[str], set[str]]:
    """The modules of which a function ran, and those where one did with the job's values."""
    found: dict[str, set[str]] = {sitecustomize.RAN: set(), sitecustomize.WITH_JOB: set()}
    folders = {Path(package).name: package for package in tree.PACKAGES}
    for file in trace.glob("*.trace"):
        for line in file.read_text().splitlines():
            kind, place, _ = line.split(" ", 2)
            package, _, module = place.partition("/")
            found[kind].add(f"{folders[package]}/{module}")
    return found[sitecustomize.RAN], found[sitecustomize.WITH_JOB]
