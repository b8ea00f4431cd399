"""Real training on real nodes: interrupted and resumed, it is as if nothing had happened."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from fixtures.training import LiveJob, Training
from railwright.profile import Operation
from railwright_testbed import Testbed

Run = Callable[[Training], LiveJob]
Volume = Callable[[str], dict[str, str]]

TRAIN = Path(__file__).resolve().parents[2] / "examples" / "fsdp" / "train.py"
STEPS = 40
EVERY = 10

WORKLOAD: dict[str, Any] = {
    "transformer": {
        "layers": 2,
        "hidden": 64,
        "heads": 4,
        "feedForward": 256,
        "vocabulary": 128,
        "biased": True,
        "positions": 48,
    },
    "parallelism": {"rankOrder": "Torch"},
    "training": {
        "sequence": 48,
        "microBatch": 8,
        "globalBatch": 16,
        "precision": "FP32",
        "gradientBytes": 4,
        "sharding": "Parameters",
    },
}
"""The example in the words of a job."""


def test_sharded_training_that_lost_a_pod_has_equal_losses(
    bed: Testbed, run: Run, checkpoints: Volume
) -> None:
    """Its losses equal those of a training that lost no pod."""
    job = run(_fsdp("interrupted", checkpoints("interrupted")))
    job.until(lambda status: _step(status) >= EVERY + 2, "steps after a checkpoint")
    plane = bed.control_plane
    plane.kubectl("-n", job.namespace, "delete", "pod", "interrupted-worker-1-1", "--wait=false")
    status = job.until_phase("Succeeded", deadline_s=180)
    assert (status["attempt"], status["lastTermination"]["cause"]) == (2, "PodDeleted")
    resumed = _losses(job, attempt=2)
    assert min(resumed) > EVERY, "it started over"
    assert (min(resumed) - 1) % EVERY == 0, "it resumed beside a checkpoint"

    whole = run(_fsdp("whole", checkpoints("whole")))
    whole.until_phase("Succeeded", deadline_s=180)
    expected = _losses(whole, attempt=1)
    assert resumed == {step: expected[step] for step in resumed}
    assert float(expected[STEPS]) <= float(expected[1]) / 2


def test_ranks_have_shared_memory_beyond_the_default(bed: Testbed, run: Run) -> None:
    """The 64 MiB of a container runtime are too little for NCCL and data loaders."""
    fill = "open('/dev/shm/filled', 'wb').write(bytes(100 << 20)); print('has stored 100 MiB')"
    job = run(Training("shared", ["python3", "-c", fill], bed.image, nodes=1, gpus=1))
    job.until_phase("Succeeded")
    assert "has stored 100 MiB" in job.logs(1, 0)


def test_next_attempt_is_mapped_by_profile_of_the_first(
    bed: Testbed, run: Run, checkpoints: Volume
) -> None:
    """The recorded traffic of the first attempt decides the order of ranks of the second."""
    spec = {"profiling": {"steps": 3}, "workload": WORKLOAD}
    job = run(replace(_fsdp("seen", checkpoints("seen")), spec=spec))
    found = job.until_profile()
    assert (found.ranks, found.steps) == (2, 3)
    gathered = {
        each.operation: each.size // found.steps for kind in found.kinds for each in kind.traffic
    }
    # Of 119,552 parameters; 19,584 of them are in no layer, and gathered once.
    assert gathered[Operation.REDUCE_SCATTER] == 4 * 119_552
    assert gathered[Operation.ALL_GATHER] == 4 * (2 * 119_552 - 19_584)
    plane = bed.control_plane
    plane.kubectl("-n", job.namespace, "delete", "pod", "seen-worker-1-1", "--wait=false")
    job.until(lambda status: status["attempt"] == 2, "another attempt")
    kept = {
        attempt: plane.kubectl(
            *("-n", job.namespace, "get", "placement", f"seen-{attempt}"),
            "-o=jsonpath={.spec.mapping.communication}",
        )
        for attempt in (1, 2)
    }
    assert kept == {1: "Derived", 2: "Measured"}
    job.delete()


def test_four_ranks_are_mapped_by_pre_run_of_two(
    bed: Testbed, run: Run, checkpoints: Volume
) -> None:
    """A pre-run with two ranks records the traffic by which the four ranks are mapped."""
    workload = WORKLOAD | {
        "parallelism": {"data": 4},
        "training": WORKLOAD["training"] | {"globalBatch": 32},
    }
    spec = {"profiling": {"preRun": "Auto"}, "workload": workload}
    volume = checkpoints("four")
    job = run(replace(_fsdp("four", volume), nodes=4, spec=spec))
    job.until(lambda status: status.get("phase") == "Profiling", "a pre-run")
    status = job.until(lambda status: _step(status) >= EVERY, "steps, and a checkpoint")
    found = job.until_profile()
    assert (found.ranks, found.steps) == (2, 3)
    assert (status["attempt"], status["failures"], "preRun" in status) == (2, 0, False)
    pre_run, training = job.placement(1), job.placement(2)
    assert (pre_run["purpose"], len(pre_run["nodes"])) == ("PreRun", 2)
    assert (training["purpose"], len(training["nodes"])) == ("Training", 4)
    assert training["mapping"]["communication"] == "Measured"
    # Two nodes trained for it, and nothing of that was kept.
    assert min(_losses(job, attempt=2)) == 1
    plane = bed.control_plane
    uid = plane.kubectl("-n", job.namespace, "get", "tj", "four", "-o=jsonpath={.metadata.uid}")
    kept = [path.name for path in (Path(volume["/checkpoints"]) / uid).glob("attempt-*")]
    assert kept == ["attempt-2"]
    job.delete()


def _step(status: dict[str, Any]) -> int:
    return int(status.get("progress", {}).get("step", 0))


def _fsdp(name: str, volume: dict[str, str]) -> Training:
    command = [
        "python3",
        str(TRAIN),
        f"--steps={STEPS}",
        f"--checkpoint-every={EVERY}",
        "--checkpoint-dir=/checkpoints",
        "--min-step-seconds=0.5",
    ]
    return Training(name, command, volumes=volume)


def _losses(job: LiveJob, *, attempt: int) -> dict[int, str]:
    """The loss of each step as it was printed, which is every bit of it."""
    found = re.findall(r"step=(\d+) loss=(\S+)", job.logs(attempt, 0))
    return {int(step): loss for step, loss in found}
