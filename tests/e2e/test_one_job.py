"""``docs/one-job.md`` names the modules through which one job really goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from architecture import one_job, tree
from fixtures import tracing
from fixtures.tracing import sitecustomize
from fixtures.training import LiveJob, Training
from railwright_testbed import Testbed, deployment
from railwright_testbed.operator_process import OperatorProcess

Run = Callable[[Training], LiveJob]
Volume = Callable[[str], dict[str, str]]

TRAIN = Path(__file__).resolve().parents[2] / "examples" / "ddp" / "train.py"
TRACER = str(Path(tracing.__file__).parent)
NAME = "one-job"
STEPS = 30
EVERY = 10


class TracedOperator(OperatorProcess):
    """Its one replica. Pods have the launcher from the image of the testbed, in which it is as in
    this checkout: modules of the product's images have other paths, which are not traced."""

    def __init__(self, bed: Testbed, trace: Path) -> None:
        address, image = bed.host_address, bed.image
        super().__init__(bed.control_plane, name="operator", host=address, launcher_image=image)
        self._trace = trace

    def options(self) -> dict[str, str]:
        return {**super().options(), **_tracing(self._trace)}


@pytest.fixture
def trace(bed: Testbed) -> Iterator[Path]:
    """A folder on all nodes, in which traced processes write. While the test runs, the operator is
    a process, and nothing else of it runs."""
    folder = bed.shared_directory / "trace"
    folder.mkdir()
    deployment.scale_operator(bed.control_plane, 0)
    yield folder
    deployment.scale_operator(bed.control_plane, deployment.REPLICAS)


def test_page_names_modules_that_handle_the_job(
    bed: Testbed, run: Run, checkpoints: Volume, trace: Path
) -> None:
    """A job trains on two nodes, loses one, and resumes from its checkpoint on another.

    Operator, launchers and ranks are traced. The page has every module in which a function ran with
    the job's values (``sitecustomize`` says which calls these are), but for what ``NOT_COUNTED``
    names, and no module without a function that ran. So the number of its modules, which the code
    report has as ``one_job_modules``, is the true one.
    """
    job = run(_training(checkpoints(NAME) | {str(trace): str(trace)}, _tracing(trace)))
    uid = job.object()["metadata"]["uid"]
    (trace / sitecustomize.MARKS).write_text(f"{NAME}\n{uid}\n")
    with TracedOperator(bed, trace):
        job.until(lambda found: _step(found) >= EVERY + 2, "steps after a checkpoint")
        lost = job.nodes()[1]
        bed.kill_node(lost)
        try:
            status = job.until_phase("Succeeded")
        finally:
            bed.restore_node(lost)
    assert (status["attempt"], status["lastTermination"]["lostNodes"]) == (2, [lost])
    ran, handled = _modules(trace)
    page = one_job.counted(set(one_job.modules()))
    missing, unused = one_job.counted(handled) - page, page - ran
    assert not missing, "the page leaves out:\n" + "\n".join(sorted(missing))
    assert not unused, "no function ran of:\n" + "\n".join(sorted(unused))


def _tracing(trace: Path) -> dict[str, str]:
    return {"PYTHONPATH": TRACER, sitecustomize.FOLDER: str(trace)}


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
