"""Four workers and an evaluator on real nodes: one gang, each role with a world of ranks and an
image of its own."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fixtures.training import LiveJob, Training
from railwright_testbed import Testbed, images

Run = Callable[[Training], LiveJob]
Volume = Callable[[str], dict[str, str]]

TRAIN = Path(__file__).resolve().parents[2] / "examples" / "fsdp" / "train.py"
STEPS = 30
EVERY = 5
WORKERS = 4
COMMAND = [
    "python3",
    str(TRAIN),
    f"--steps={STEPS}",
    f"--checkpoint-every={EVERY}",
    "--checkpoint-dir=/checkpoints",
    "--min-step-seconds=0.5",
]
EVALUATE = f"""
import os, pathlib, sys, time
sys.path.insert(0, "{TRAIN.parent}")
import railwright
from train import Transformer

class Evaluated:
    steps: tuple = ()
    def state_dict(self): return {{"steps": list(self.steps)}}
    def load_state_dict(self, state): self.steps = tuple(state["steps"])

names = "RANK WORLD_SIZE GROUP_WORLD_SIZE ROLE_NAME ROLE_RANK ROLE_WORLD_SIZE".split()
print("evaluates as", *(os.environ[name] for name in names), flush=True)
print("image", os.environ["{images.VARIABLE}"], flush=True)
evaluated = Evaluated()
own = railwright.Checkpointer("/checkpoints", evaluated=evaluated)
workers = railwright.Checkpointer("/checkpoints", Transformer(64, 2, 48), group="worker")
newest = own.load()
print("begins after", newest, evaluated.steps, flush=True)
while newest < {STEPS}:
    if step := workers.load(after=newest):
        newest, evaluated.steps = step, (*evaluated.steps, step)
        own.save(newest)
        print("evaluated", newest, flush=True)
    else:
        time.sleep(0.5)
print("evaluated the last checkpoint", evaluated.steps, flush=True)
"""


def test_workers_and_evaluator_survive_a_node_of_each(
    bed: Testbed, run: Run, checkpoints: Volume
) -> None:
    """Whichever role loses a node, the whole gang starts again with the image of each role, and
    each group resumes from its own checkpoint."""
    job = run(_gang(bed, checkpoints("roles")))
    job.until(lambda status: _step(status) > EVERY + 1, "steps after a checkpoint")
    assert "evaluates as 0 1 1 evaluator 0 1" in job.logs_of("roles-evaluator-0-1")
    assert "world=4" in job.logs_of("roles-worker-3-1")
    _check_images(bed, job, attempt=1)
    _lose(bed, job, job.nodes()[0], attempt=2)
    job.until(
        lambda status: (
            2 in _committed(status, "worker") and _committed(status, "evaluator") != set()
        ),
        "a checkpoint of the second attempt, and one of the evaluator",
    )
    _lose(bed, job, job.nodes()[WORKERS], attempt=3)
    status = job.until_phase("Succeeded", deadline_s=240)
    assert (status["attempt"], status["failures"]) == (3, 0)
    assert _committed(status, "worker") == {1, 2, 3}
    resume = [point for point in job.placement(3)["resume"] if point["group"] == "evaluator"]
    assert resume[0]["step"] >= EVERY
    logs = job.logs_of("roles-evaluator-0-3")
    step = resume[0]["step"]
    # It evaluates the newest checkpoint, and may have left out earlier ones.
    assert re.search(rf"begins after {step} \((\d+, )*{step},?\)", logs), logs
    assert f"{STEPS})" in logs.rpartition("evaluated the last checkpoint")[2]
    _check_images(bed, job, attempt=3)
    job.delete()


def _check_images(bed: Testbed, job: LiveJob, *, attempt: int) -> None:
    """Each role runs its own image, and the evaluator finds what is in its own alone."""
    first, second = bed.image, bed.second_image
    pods = {pod["metadata"]["name"]: pod for pod in job.pods()}
    chosen = {name: pod for name, pod in pods.items() if name.endswith(f"-{attempt}")}
    expected = {f"roles-worker-{index}-{attempt}": first for index in range(WORKERS)}
    expected |= {f"roles-evaluator-0-{attempt}": second}
    assert {name: _main(pod["spec"]["containers"])["image"] for name, pod in chosen.items()} == (
        expected
    )
    digests = {
        name: _main(pod["status"]["containerStatuses"])["imageID"] for name, pod in chosen.items()
    }
    evaluators = digests.pop(f"roles-evaluator-0-{attempt}")
    assert evaluators not in digests.values()
    assert f"image {second}" in job.logs_of(f"roles-evaluator-0-{attempt}")


def _main(containers: list[dict[str, Any]]) -> dict[str, Any]:
    """The container of the user's command, of a pod's spec or status."""
    return next(each for each in containers if each["name"] == "train")


def _lose(bed: Testbed, job: LiveJob, node: str, *, attempt: int) -> None:
    """Kill the node and wait for an attempt without it."""
    bed.kill_node(node)
    try:
        status = job.until(
            lambda status: status["phase"] == "Running" and status["attempt"] == attempt,
            f"attempt {attempt}",
        )
        assert node not in job.nodes()
        assert status["lastTermination"]["cause"] == "NodeLost"
    finally:
        bed.restore_node(node)


def _gang(bed: Testbed, volume: dict[str, str]) -> Training:
    training = Training("roles", COMMAND, nodes=WORKERS, volumes=volume)
    (worker,) = training.manifest("")["spec"]["roles"]
    pod = worker["template"]["spec"]
    main = pod["containers"][0] | {"image": bed.image}
    worker["template"]["spec"] = pod | {"containers": [main]}
    beside = main | {
        "image": bed.second_image,
        "command": ["python3", "-c", EVALUATE],
        "resources": {},
    }
    evaluator = {
        "name": "evaluator",
        "replicas": 1,
        "template": {"spec": pod | {"containers": [beside]}},
    }
    return Training("roles", COMMAND, nodes=WORKERS, spec={"roles": [worker, evaluator]})


def _committed(status: dict[str, Any], group: str) -> set[int]:
    """The attempts of which a group has checkpoints."""
    points = status.get("checkpoints", ())
    return {point["attempt"] for point in points if point["group"] == group}


def _step(status: dict[str, Any]) -> int:
    return int(status.get("progress", {}).get("step", 0))
