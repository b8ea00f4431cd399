"""Jobs with faults: one loses a node and recovers on a slow one, as another job has the last good
one; one fails, two wait, one succeeds.

The nodes claim GPUs and have none. So what only GPUs would show is stated: their product, the model
that the trained job stands for, and benchmarks in which one node is slow.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from railwright_conversion.machines import PRODUCT as PRODUCT_LABEL
from railwright_testbed import ControlPlane, Testbed, example_job, waiting
from railwright_testbed.service_process import NAMESPACE

Json = dict[str, Any]
Report = Callable[[str], None]

OBSERVED = "language-model"
"""The job that trains all the time; it has this many nodes of five."""

NODES = 3
STEPS = 6000
STEP_S = 0.25
STEPS_BEFORE_FAULT = 150
STEPS_AFTER_FAULT = 150
STEPS_OF_SMALL_JOB = 60
LEASE = "railwright-operator"

PRODUCT = "NVIDIA-H100-80GB-HBM3"
WORKLOAD: Json = {
    "transformer": {
        "layers": 24,
        "hidden": 1024,
        "heads": 16,
        "feedForward": 4096,
        "vocabulary": 50304,
    },
    "parallelism": {"data": NODES},
    "training": {"sequence": 1024, "globalBatch": 72},
}
"""A step of it is predicted to take about as long as one of the script, which trains a small model
on processors and pauses after each step."""

FLOP_PER_S = 660 * 10**12
SLOW_FLOP_PER_S = 400 * 10**12
"""On the last node."""
MEMORY_BYTES_PER_S = 2_800 * 10**9

PHASE_DEADLINE_S = 300.0


def play(bed: Testbed, report: Report) -> None:
    """Apply the jobs and cause the faults, one after another; return after the last of them."""
    report(f"the nodes: {PRODUCT}, of which {bed.nodes[-1].name} is slow")
    _describe_gpus(bed)
    report(f"{OBSERVED}: applied, all GPUs of {NODES} of {len(bed.nodes)} nodes")
    _apply(bed, OBSERVED, nodes=NODES, steps=STEPS, workload=WORKLOAD)
    _until_step(bed, OBSERVED, 1)
    report("image-model: applied, one node; it will succeed")
    _apply(bed, "image-model", nodes=1, steps=STEPS_OF_SMALL_JOB)
    report("wrong-path: applied, one node; its script does not exist")
    _apply(bed, "wrong-path", nodes=1, command=["python3", "/examples/tain.py"])
    report("too-large: applied, nine nodes; it can never run here")
    _apply(bed, "too-large", nodes=9)
    _until_phase(bed, "wrong-path", "Failed")
    _until_phase(bed, "image-model", "Succeeded")
    good = {node.name for node in bed.nodes[:-1]} - {*_nodes(bed)}
    report(f"notebook: applied, for {min(good)}, the last good node; it reports no steps")
    _apply(bed, "notebook", nodes=1, command=["sleep", "infinity"], node=min(good))
    _until_phase(bed, "notebook", "Running")
    replace_leader(bed.control_plane, report)
    # The next leader has no last heartbeat of a node that sent it none.
    _until_step(bed, OBSERVED, _step(_status(bed, OBSERVED)) + STEPS_BEFORE_FAULT)
    lost = _node_to_lose(bed)
    report(f"{lost}: its power is cut; {OBSERVED} trains there")
    bed.kill_node(lost)
    _until_attempt(bed, OBSERVED, 2)
    report("next-in-line: applied, two nodes; none is free, so it waits")
    _apply(bed, "next-in-line", nodes=2)
    step = _until_step_of_attempt(bed, OBSERVED, 2)
    report(f"{OBSERVED}: trains again, from step {step}")
    _until_step(bed, OBSERVED, step + STEPS_AFTER_FAULT)


def replace_leader(plane: ControlPlane, report: Report) -> str:
    """Delete the pod of the operator that leads; return the next one that does."""
    deleted = _leader(plane)
    report(f"{deleted}: deleted; the standby will lead")
    plane.kubectl("-n", NAMESPACE, "delete", "pod", deleted, "--wait=false")

    def another() -> str:
        leader = _leader(plane)
        return "" if leader == deleted else leader

    return waiting.until(another, "another leader", deadline_s=PHASE_DEADLINE_S)


def _describe_gpus(bed: Testbed) -> None:
    plane, names = bed.control_plane, [node.name for node in bed.nodes]
    plane.kubectl("label", "nodes", *names, f"{PRODUCT_LABEL}={PRODUCT}")
    racks: dict[str, list[str]] = {}
    for node in bed.nodes:
        racks.setdefault(node.rack, []).append(node.name)
    plan = {"version": 1, "tiers": ["rack"], "domains": {k: ",".join(v) for k, v in racks.items()}}
    files = {"plan.yaml": json.dumps(plan), "benchmarks.json": json.dumps(_benchmarks(names))}
    plane.kubectl("apply", "-f", "-", stdin=json.dumps(_site(files)))

    def is_published() -> bool:
        fabric = json.loads(plane.kubectl("get", "fabric", "default", "-o=json"))
        return bool(fabric.get("status", {}).get("slowCount") == 1)

    waiting.until(is_published, "the slow node", deadline_s=PHASE_DEADLINE_S)


def _site(files: Mapping[str, str]) -> Json:
    """The ConfigMap with what the site says of its nodes."""
    labels = {"railwright.dev/fabric": "default"}
    metadata = {"name": "site", "namespace": NAMESPACE, "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {**files}}


def _benchmarks(nodes: Sequence[str]) -> Json:
    """What a benchmark of each node would have found."""
    device = {"device": "gpu:0", "model": PRODUCT, "by": "stated for this cluster"}
    return {
        node: {
            "version": 1,
            "benchmarks": [
                {
                    **device,
                    "flop_per_s": SLOW_FLOP_PER_S if node == nodes[-1] else FLOP_PER_S,
                    "memory_bytes_per_s": MEMORY_BYTES_PER_S,
                }
            ],
        }
        for node in nodes
    }


def _apply(
    bed: Testbed,
    name: str,
    *,
    nodes: int,
    steps: int = STEPS,
    command: list[str] | None = None,
    workload: Json | None = None,
    node: str = "",
) -> None:
    folder = bed.shared_directory / name
    folder.mkdir()
    job = example_job.manifest(
        name, image=bed.image, checkpoints=folder, min_step_s=STEP_S, nodes=nodes, steps=steps
    )
    if workload is not None:
        job["spec"]["workload"] = workload
    if node:
        pod = job["spec"]["roles"][0]["template"]["spec"]
        pod["nodeSelector"] = {"kubernetes.io/hostname": node}
    if command is not None:
        job["spec"]["failurePolicy"] = {"backoffLimit": 0}
        job["spec"]["roles"][0]["template"]["spec"]["containers"][0]["command"] = command
    bed.control_plane.kubectl("apply", "-f", "-", stdin=json.dumps(job))


def _status(bed: Testbed, name: str) -> Json:
    found: Json = json.loads(bed.control_plane.kubectl("get", "tj", name, "-o=json"))
    status: Json = found.get("status", {})
    return status


def _step(status: Json) -> int:
    return int(status.get("progress", {}).get("step", 0))


def _until(bed: Testbed, name: str, holds: Callable[[Json], bool], what: str) -> Json:
    def holding() -> Json | None:
        status = _status(bed, name)
        return status if holds(status) else None

    return waiting.until(
        holding,
        f"{name}: {what}",
        deadline_s=PHASE_DEADLINE_S,
        evidence=lambda: bed.control_plane.kubectl("describe", "tj", name),
        pause_s_longest=1.0,
    )


def _until_phase(bed: Testbed, name: str, phase: str) -> None:
    _until(bed, name, lambda status: status.get("phase") == phase, phase)


def _until_step(bed: Testbed, name: str, step: int) -> None:
    _until(bed, name, lambda status: _step(status) >= step, f"step {step}")


def _until_attempt(bed: Testbed, name: str, attempt: int) -> None:
    _until(bed, name, lambda status: status.get("attempt", 0) >= attempt, f"attempt {attempt}")


def _until_step_of_attempt(bed: Testbed, name: str, attempt: int) -> int:
    def steps(status: Json) -> bool:
        return bool(status.get("phase") == "Running" and status.get("attempt") == attempt)

    return _step(_until(bed, name, steps, f"attempt {attempt} runs"))


def _node_to_lose(bed: Testbed) -> str:
    """One of the job's, without a pod of Railwright but for its agent if there is one."""
    plane = bed.control_plane
    pods = json.loads(plane.kubectl("-n", NAMESPACE, "get", "pods", "-o=json"))["items"]
    hosts = [
        pod["spec"]["nodeName"]
        for pod in pods
        if not pod["metadata"]["name"].startswith("railwright-agent")
    ]
    return min(_nodes(bed), key=lambda node: (hosts.count(node), node))


def _nodes(bed: Testbed) -> list[str]:
    """Those that the observed job trains on."""
    name = f"{OBSERVED}-{_status(bed, OBSERVED)['attempt']}"
    placement = json.loads(bed.control_plane.kubectl("get", "placement", name, "-o=json"))
    nodes: list[str] = placement["spec"]["nodes"]
    return nodes


def _leader(plane: ControlPlane) -> str:
    """The pod of the operator that leads; empty while none does."""
    lease = plane.kubectl("-n", NAMESPACE, "get", "lease", LEASE, "-o=json")
    holder: str = json.loads(lease)["spec"].get("holderIdentity", "")
    return holder
