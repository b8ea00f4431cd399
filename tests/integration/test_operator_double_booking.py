"""Pods of two attempts on one device, planted on a real API server."""

from __future__ import annotations

from integration.operator_site import Floor, Job, Json
from railwright_api import names
from railwright_testbed import waiting

GPU = "nvidia.com/gpu"
METRIC = "railwright_double_booked_nodes"


def test_double_booked_node_takes_nothing_more(floor: Floor) -> None:
    """The jobs and a metric say so, all else goes on, and it clears with the pod."""
    holder, other = floor.apply("holder", nodes=1), floor.apply("other", nodes=1)
    (node,) = holder.until_nodes()
    (other_node,) = other.until_nodes()
    _create_pod(floor, "foreign", other_node, {})
    stray = _identity(other, attempt=7)
    floor.site.forge(lambda: _create_pod(floor, "other-worker-0-7", node, stray), "operator-pods")
    for job in (holder, other):
        _until_healthy(job, "False", "NodeDoubleBooked")
        assert f"hold 16 {GPU} on {node}, which has 8" in _healthy(job)["message"]
    _until_metric(floor, 1)
    # It took what was given away: the history would count later commits on its node as too much.
    floor.site.admin.delete(f"{_pods(floor)}/foreign?gracePeriodSeconds=0")
    every = floor.apply("every", nodes=len(floor.nodes), gpus=0)
    every.until_said("1 double-booked")
    fits = floor.apply("fits", nodes=len(floor.nodes) - 1, gpus=0)
    assert node not in fits.until_nodes()
    assert (holder.status()["attempt"], other.status()["attempt"]) == (1, 1)
    floor.site.admin.delete(f"{_pods(floor)}/other-worker-0-7?gracePeriodSeconds=0")
    for job in (holder, other):
        _until_healthy(job, "True", "NothingFound")
    _until_metric(floor, 0)
    every.until_bound()
    log = floor.site.operator.log_file.read_text()
    assert "invariant violated" in log
    assert "invariant restored" in log


def _until_metric(floor: Floor, nodes: int) -> None:
    waiting.until(
        lambda: floor.site.metrics(METRIC) == {METRIC: nodes}, f"{METRIC} {nodes}", deadline_s=20
    )


def _healthy(job: Job) -> Json:
    found: list[Json] = job.status()["conditions"]
    return next(each for each in found if each["type"] == "Healthy")


def _until_healthy(job: Job, status: str, reason: str) -> None:
    waiting.until(
        lambda: (_healthy(job)["status"], _healthy(job)["reason"]) == (status, reason),
        f"{job.name} Healthy={status}, {reason}",
        deadline_s=20,
        evidence=lambda: str(_healthy(job)),
    )


def _identity(job: Job, *, attempt: int) -> Json:
    """The metadata by which a pod is one of this job's."""
    uid = job.object()["metadata"]["uid"]
    owner = {"apiVersion": names.API_VERSION, "kind": "TrainingJob", "name": job.name, "uid": uid}
    labels = {
        names.LABEL_JOB_UID: uid,
        names.LABEL_JOB_NAME: job.name,
        names.LABEL_ATTEMPT: str(attempt),
        names.LABEL_NODE_RANK: "0",
        names.LABEL_ROLE: "worker",
        names.LABEL_COMPLETION_INDEX: "0",
    }
    return {"labels": labels, "ownerReferences": [{**owner, "controller": True}]}


def _create_pod(floor: Floor, name: str, node: str, metadata: Json) -> None:
    container = {"name": "c", "image": "i", "resources": {"limits": {GPU: "8"}}}
    spec = {"nodeName": node, "containers": [container]}
    floor.site.admin.post(_pods(floor), {"metadata": {"name": name, **metadata}, "spec": spec})


def _pods(floor: Floor) -> str:
    return f"/api/v1/namespaces/{floor.name}/pods"
