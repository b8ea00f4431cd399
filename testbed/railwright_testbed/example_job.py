"""examples/ddp/job.yaml with the settings of a testbed: nodes, image and volume."""

from __future__ import annotations

from pathlib import Path

import yaml

from railwright_testbed.api_client import Json

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLE = REPOSITORY / "examples" / "ddp"
STEPS = 60
CHECKPOINT_INTERVAL_STEPS = 10
RACKS = {"rack-a": 2, "rack-b": 2, "rack-c": 1}
NUM_NODES = 4
GPUS_PER_NODE = 8
GPU = "nvidia.com/gpu"


def manifest(
    name: str,
    *,
    image: str,
    checkpoints: Path | None,
    min_step_s: float,
    nodes: int = NUM_NODES,
    steps: int = STEPS,
) -> Json:
    """The TrainingJob: all GPUs of its nodes, at least so many seconds for each step.

    ``checkpoints`` is a folder of this machine that all its nodes share; None: no pod will write.
    """
    job: Json = yaml.safe_load((EXAMPLE / "job.yaml").read_text())
    job["metadata"]["name"] = name
    (role,) = job["spec"]["roles"]
    role["replicas"] = nodes
    pod = role["template"]["spec"]
    main = pod["containers"][0]
    main["resources"] = {"limits": {GPU: GPUS_PER_NODE}}
    main["image"] = image
    script = str(EXAMPLE / "train.py")
    main["command"] = command(script, min_step_s=min_step_s, steps=steps)
    source: Json = {"emptyDir": {}}
    if checkpoints is not None:
        source = {"hostPath": {"path": str(checkpoints), "type": "Directory"}}
    pod["volumes"] = [{"name": main["volumeMounts"][0]["name"], **source}]
    return job


def command(script: str, *, min_step_s: float, steps: int = STEPS) -> list[str]:
    """What each rank runs, with a script that is at this path in its container."""
    return [
        "python3",
        script,
        f"--steps={steps}",
        f"--checkpoint-every={CHECKPOINT_INTERVAL_STEPS}",
        "--checkpoint-dir=/checkpoints",
        f"--min-step-seconds={min_step_s}",
    ]
