"""Nodes that change, or are taken by others, between a gang's commit and its binding."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from history import stored
from integration import operator_site
from integration.operator_site import Floor, Job, Json, Site
from railwright_api import names
from railwright_testbed import waiting
from railwright_testbed.api_client import ApiError

GPU = "nvidia.com/gpu"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
TAINT = {"key": "team", "value": "blue", "effect": "NoSchedule"}


def _taken(floor: Floor, node: str) -> None:
    asked = {"limits": {GPU: "5"}}
    container = {"name": "c", "image": "i", "resources": asked}
    pod: Json = {"metadata": {"name": "foreign"}, "spec": {"nodeName": node}}
    pod["spec"]["containers"] = [container]
    floor.site.admin.post(f"/api/v1/namespaces/{floor.name}/pods", pod)


def _gone(floor: Floor, node: str) -> None:
    floor.site.admin.delete(f"/api/v1/nodes/{node}")


def _patched(path: str, change: Json) -> Callable[[Floor, str], None]:
    def act(floor: Floor, node: str) -> None:
        floor.site.admin.patch(f"/api/v1/nodes/{node}{path}", change)

    return act


CHANGES: dict[str, tuple[Callable[[Floor, str], None], str]] = {
    "taken": (_taken, f"has 3 {GPU} left and not 8"),
    "gone": (_gone, "went"),
    "shrunk": (
        _patched("/status", {"status": {"allocatable": {GPU: "7"}, "capacity": {GPU: "7"}}}),
        f"has 7 {GPU} left and not 8",
    ),
    "relabelled": (
        _patched("", {"metadata": {"labels": {operator_site.FLOOR_LABEL: "other"}}}),
        f"is not labelled {operator_site.FLOOR_LABEL}=",
    ),
    "moved": (
        _patched("", {"metadata": {"labels": {names.LABEL_RACK: "elsewhere"}}}),
        f"its nodes are in 2 domains of {names.LABEL_RACK} now, planned was 1",
    ),
    "tainted": (_patched("", {"spec": {"taints": [TAINT]}}), "is tainted team=blue:NoSchedule"),
    "cordoned": (_patched("", {"spec": {"unschedulable": True}}), "is cordoned"),
}


def test_node_change_before_bind_replans_gang(
    site: Site,
) -> None:
    """The node loses capacity during the commit; no node is overcommitted."""
    with operator_site.floor_on(site, (2,) * 2 * len(CHANGES)) as floor:
        with _nobody_makes_rank_1(site, floor):
            jobs = {name: floor.apply(name) for name in CHANGES}
            planned = {name: _committed(floor, name) for name in CHANGES}
            for name, (change, _) in CHANGES.items():
                change(floor, planned[name])
            for name, (_, why) in CHANGES.items():
                stated = why if name == "moved" else f"node {planned[name]} {why}"
                jobs[name].until(partial(_ended, stated), stated)
        for name, job in jobs.items():
            status = job.until(partial(_is_bound, job), "bound again")
            assert planned[name] not in job.nodes()
            assert (status["failures"], status["restarts"]) == (0, 0)
        _check_room(site, floor)


@contextmanager
def _nobody_makes_rank_1(site: Site, floor: Floor) -> Iterator[None]:
    """A webhook that is down: pods of node rank 1 cannot be made on this floor for now."""
    chosen = {"matchLabels": {"kubernetes.io/metadata.name": floor.name}}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"]}
    webhook = {
        "name": "down.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [rule | {"resources": ["pods"]}],
        "namespaceSelector": chosen,
        "objectSelector": {"matchLabels": {names.LABEL_NODE_RANK: "1"}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 1,
    }
    site.admin.post(WEBHOOKS, {"metadata": {"name": floor.name}, "webhooks": [webhook]})
    try:
        waiting.until(lambda: _is_held_up(site, floor), "the webhook in force", deadline_s=20)
        yield
    finally:
        site.admin.delete(f"{WEBHOOKS}/{floor.name}")


def _is_held_up(site: Site, floor: Floor) -> bool:
    labels = {names.LABEL_NODE_RANK: "1"}
    pod = {"metadata": {"name": "probe", "labels": labels}}
    spec = {"containers": [{"name": "c", "image": "i"}]}
    try:
        site.admin.post(f"/api/v1/namespaces/{floor.name}/pods?dryRun=All", pod | {"spec": spec})
    except ApiError as error:
        return error.status == 500
    return False


def _committed(floor: Floor, name: str) -> str:
    """The node of rank 1 of the job's attempt, once it is in the ledger."""

    def node() -> str | None:
        entries = floor.site.ledger()["spec"].get("entries", [])
        mine = [
            each for each in entries if (each["namespace"], each["jobName"]) == (floor.name, name)
        ]
        return stored.node_names(mine[0]["nodes"])[1] if mine else None

    return waiting.until(node, f"{name} in the ledger", deadline_s=20)


def _ended(words: str, status: Json) -> bool:
    end = status.get("lastTermination", {})
    return end.get("cause") == "CommitRefused" and words in end["message"]


def _is_bound(job: Job, status: Json) -> bool:
    if not status.get("nodes"):
        return False
    return job.bound(status["attempt"]) == dict(enumerate(job.nodes()))


def _check_room(site: Site, floor: Floor) -> None:
    """What the pods on each node ask for is no more than it has."""
    pods = site.admin.get(f"/api/v1/namespaces/{floor.name}/pods")["items"]
    used: collections.Counter[str] = collections.Counter()
    for pod in pods:
        asked = pod["spec"]["containers"][0]["resources"]["limits"][GPU]
        used[pod["spec"]["nodeName"]] += int(asked)
    had = {
        node["metadata"]["name"]: int(node["status"]["allocatable"].get(GPU, 0))
        for node in site.admin.get("/api/v1/nodes")["items"]
    }
    assert not {node: count for node, count in used.items() if count > had[node]}
