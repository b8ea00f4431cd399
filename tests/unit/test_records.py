"""Pods and nodes as the API server sends them, read into records."""

from __future__ import annotations

import json
import typing
from collections.abc import Iterator
from typing import Any

import msgspec
import orjson
import pytest
from msgspec import Struct

from fixtures import protobufs
from railwright_conversion import amounts
from railwright_kube import core_v1, projections, protobuf
from railwright_kube.core_v1 import NodeObject, PodObject
from railwright_kube.projections import Undeclared
from railwright_kube.protobuf import NodeList, PodList
from railwright_operator.watch import records
from railwright_operator.watch.records import PodRecord
from railwright_scheduler.model.snapshot import Taint
from railwright_watch import nodes
from railwright_watch.nodes import NodeRecord

JOB_UID = "11111111-1111-1111-1111-111111111111"
OURS = {
    "railwright.dev/job-uid": JOB_UID,
    "railwright.dev/job-name": "llm",
    "railwright.dev/attempt": "3",
    "railwright.dev/node-rank": "7",
    "railwright.dev/role": "worker",
    "batch.kubernetes.io/job-completion-index": "7",
}


OWNER = {
    "apiVersion": "railwright.dev/v1alpha1",
    "kind": "TrainingJob",
    "name": "llm",
    "controller": True,
}


def raw_pod(
    *,
    labels: dict[str, str] | None = None,
    owner: str = JOB_UID,
    spec: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
) -> dict[str, Any]:
    return {
        "metadata": {
            "uid": "u",
            "namespace": "team",
            "name": "llm-worker-7-3",
            "resourceVersion": "41",
            "labels": labels or {},
            "ownerReferences": [OWNER | {"uid": owner}],
        },
        "spec": {"containers": [container({})], "nodeName": "n1"} | (spec or {}),
        "status": {"phase": "Running"} | (status or {}),
    }


def container(requests: dict[str, str], **more: Any) -> dict[str, Any]:
    return {"name": "main", "resources": {"requests": requests}} | more


def read_pod(raw: dict[str, Any]) -> PodRecord:
    """The record that a list, a stream and an answer all give."""
    (item,) = protobuf.POD.page(protobufs.page(PodList, [raw])).items
    listed, streamed = protobuf.POD.listed(item), protobuf.POD.streamed(orjson.dumps(raw))
    assert not isinstance(listed, Undeclared)
    assert not isinstance(streamed, Undeclared), streamed.why
    record = records.answered(raw)
    assert record == records.pod(listed) == records.pod(streamed)
    return record


def read_node(raw: dict[str, Any]) -> NodeRecord:
    """The record that a list and a stream both give."""
    (item,) = protobuf.NODE.page(protobufs.page(NodeList, [raw])).items
    listed, streamed = protobuf.NODE.listed(item), protobuf.NODE.streamed(orjson.dumps(raw))
    assert not isinstance(listed, Undeclared)
    assert not isinstance(streamed, Undeclared), streamed.why
    record, other = nodes.node(listed), nodes.node(streamed)
    assert (other, other.unread) == (record, record.unread)
    return record


def node_of(raw: dict[str, Any]) -> NodeObject:
    return projections.converted(raw, NodeObject)


def test_gang_pod_is_identified_by_job_attempt_and_rank() -> None:
    record = read_pod(raw_pod(labels=OURS))
    assert record.job_uid == JOB_UID
    assert (record.attempt, record.node_rank, record.node, record.rv) == (3, 7, "n1", 41)


@pytest.mark.parametrize(
    ("labels", "owner"),
    [
        ({}, JOB_UID),
        (OURS, "another owner"),
        (OURS | {"railwright.dev/attempt": "-1"}, JOB_UID),
        (OURS | {"railwright.dev/node-rank": "first"}, JOB_UID),
    ],
    ids=["no labels", "labels without the owner", "attempt below 0", "rank is no number"],
)
def test_a_pod_that_only_pretends_is_foreign(labels: dict[str, str], owner: str) -> None:
    assert read_pod(raw_pod(labels=labels, owner=owner)).job_uid is None


@pytest.mark.parametrize(
    "lie",
    [{"kind": "ConfigMap"}, {"apiVersion": "v1"}, {"name": "other"}, {"controller": False}],
    ids=lambda lie: next(iter(lie)),
)
def test_an_owner_that_is_not_the_job_makes_a_pod_foreign(lie: dict[str, Any]) -> None:
    raw = raw_pod(labels=OURS)
    raw["metadata"]["ownerReferences"][0] |= lie
    assert read_pod(raw).job_uid is None


def test_name_not_of_role_and_attempt_makes_pod_foreign() -> None:
    """Labels alone do not make a pod part of a gang."""
    raw = raw_pod(labels=OURS | {"batch.kubernetes.io/job-completion-index": "99"})
    assert read_pod(raw).job_uid is None


def test_an_update_that_changes_nothing_here_is_no_news() -> None:
    older, newer = raw_pod(labels=OURS), raw_pod(labels=OURS)
    newer["metadata"]["resourceVersion"] = "42"
    assert read_pod(older) == read_pod(newer)


def test_how_the_main_container_ended_is_kept_with_its_message() -> None:
    ended = {"exitCode": 137, "reason": "OOMKilled", "message": "x" * 10_000}
    statuses = [
        {"name": "sidecar", "state": {"terminated": {"exitCode": 1}}},
        {"name": "main", "state": {"terminated": ended}},
    ]
    status = {"phase": "Failed", "containerStatuses": statuses}
    record = read_pod(raw_pod(labels=OURS, status=status))
    assert record.terminal
    assert record.exit == records.Exit(137, "OOMKilled", "x" * records.TEXT_MAX)


def test_container_behind_another_is_not_stuck() -> None:
    statuses = [
        {"name": "a", "state": {"waiting": {"reason": "PodInitializing"}}},
        {"name": "b", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no"}}},
    ]
    status = {"phase": "Pending", "containerStatuses": statuses}
    record = read_pod(raw_pod(labels=OURS, status=status))
    assert record.waiting == core_v1.Waiting("ImagePullBackOff", "no")
    status["containerStatuses"] = statuses[:1]
    assert read_pod(raw_pod(labels=OURS, status=status)).waiting is None


def test_container_with_its_image_is_found_by_its_status() -> None:
    statuses = [
        {"name": "a", "containerID": "containerd://1", "state": {"running": {"startedAt": None}}},
        {"name": "b", "state": {"waiting": {"reason": "CreateContainerError"}}},
        {"name": "c", "state": {"waiting": {"reason": "ErrImagePull"}}},
        {"name": "d", "state": {"waiting": {"reason": "ContainerCreating"}}},
    ]
    status = {"phase": "Pending", "containerStatuses": statuses}
    assert read_pod(raw_pod(labels=OURS, status=status)).pulled == ("a", "b")
    assert read_pod(raw_pod(labels=OURS, status=status | {"phase": "Running"})).pulled == ()


def test_an_eviction_is_seen_by_its_condition() -> None:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    status = {"phase": "Failed", "reason": "Evicted", "conditions": [condition]}
    record = read_pod(raw_pod(labels=OURS, status=status))
    assert (record.reason, record.disruption) == ("Evicted", "EvictionByEvictionAPI")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"containers": [container({"cpu": "500m"}), container({"cpu": "1"})]}, {"cpu": 1500}),
        (
            {
                "containers": [container({"cpu": "1"})],
                "initContainers": [container({"cpu": "3", "memory": "1Gi"})],
            },
            {"cpu": 3000, "memory": 2**30},
        ),
        (
            {
                "containers": [container({"cpu": "1"})],
                "initContainers": [
                    container({"cpu": "2"}, restartPolicy="Always"),
                    container({"cpu": "4"}),
                ],
            },
            {"cpu": 6000},
        ),
        (
            {"containers": [container({"cpu": "1"})], "overhead": {"cpu": "250m"}},
            {"cpu": 1250},
        ),
        (
            {
                "containers": [container({"cpu": "1", "nvidia.com/gpu": "8"})],
                "resources": {"requests": {"cpu": "5"}},
            },
            {"cpu": 5000, "nvidia.com/gpu": 8},
        ),
        ({"containers": [{"resources": {"limits": {"cpu": "2"}}}]}, {"cpu": 2000}),
        (
            {"containers": [{"resources": {"limits": {"cpu": "10P"}, "requests": {"cpu": "1"}}}]},
            {"cpu": 1000},
        ),
    ],
    ids=[
        "containers add up",
        "init alone",
        "init beside a sidecar",
        "overhead",
        "pod level",
        "a limit without a request",
        "a limit above a request",
    ],
)
def test_requests_count_as_kubernetes_counts_them(
    spec: dict[str, Any], expected: dict[str, int]
) -> None:
    assert read_pod(raw_pod(spec=spec)).requests == expected | {"pods": 1}
    assert amounts.requested(amounts.asked(spec)) == expected | {"pods": 1}


def test_what_users_leave_empty_in_a_spec_counts_for_nothing() -> None:
    asks: dict[str, Any] = container({"cpu": 1}, restartPolicy=None)  # type: ignore[dict-item]
    bare = {"name": "bare", "resources": None}
    spec = {"containers": [asks, bare], "initContainers": None, "overhead": None}
    assert amounts.requested(amounts.asked(spec)) == {"cpu": 1000, "pods": 1}


def raw_node(**status: Any) -> dict[str, Any]:
    return {
        "metadata": {"uid": "n", "name": "n1", "resourceVersion": "5", "labels": {"a": "b"}},
        "spec": {"unschedulable": True, "taints": [{"key": "k", "effect": "NoSchedule"}]},
        "status": status,
    }


@pytest.mark.parametrize("amount", ["-1", "NaN", "8k8", "", "1e", "7.5"])
def test_node_with_unreadable_amount_has_none_of_it(amount: str) -> None:
    """The error is kept for the Fabric's status."""
    record = read_node(raw_node(allocatable={"nvidia.com/gpu": amount, "cpu": "64"}))
    assert dict(record.allocatable) == {"nvidia.com/gpu": 0, "cpu": 64_000}
    assert list(record.unread) == ["nvidia.com/gpu"]


def test_unreadable_amount_keeps_last_value() -> None:
    """The new record equals the old one, so no change is reported."""
    first = read_node(raw_node(allocatable={"nvidia.com/gpu": "8", "cpu": "64"}))
    for amount in ("-1", "8k8", "7.5"):
        news = read_node(raw_node(allocatable={"nvidia.com/gpu": amount, "cpu": "64"}))
        broken = nodes.with_held_amounts(first, news)
        assert broken == first
        assert amount in broken.unread["nvidia.com/gpu"]
    fewer = nodes.with_held_amounts(
        first, nodes.node(node_of(raw_node(allocatable={"nvidia.com/gpu": "7", "cpu": "64"})))
    )
    assert (fewer.allocatable["nvidia.com/gpu"], fewer.unread) == (7, {})
    anew = read_node(raw_node(allocatable={"nvidia.com/gpu": "NaN"}))
    assert anew.allocatable["nvidia.com/gpu"] == 0


def test_a_node_without_a_ready_condition_is_not_ready() -> None:
    record = read_node(raw_node())
    assert (record.ready, record.cordoned) == (False, True)
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    assert read_node(raw_node(conditions=[ready])).ready


CONTAINER = {
    "name": "main",
    "restartPolicy": "Always",
    "resources": {"limits": {"nvidia.com/gpu": "8"}, "requests": {"cpu": "1500m"}},
}
STATE = {
    "terminated": {"exitCode": 3, "reason": "Error", "message": "no"},
    "waiting": {"reason": "ImagePullBackOff", "message": "later"},
}
CONTAINER_STATUS = {"name": "main", "state": STATE, "containerID": "containerd://1"}
CONDITION = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
METADATA = {
    "uid": "u",
    "namespace": "team",
    "name": "llm-worker-7-3",
    "resourceVersion": "41",
    "labels": OURS,
    "ownerReferences": [OWNER | {"uid": JOB_UID}],
    "deletionTimestamp": "2026-01-02T03:04:05Z",
}
FULL = {
    "Pod": {
        "metadata": METADATA,
        "spec": {
            "nodeName": "n1",
            "containers": [CONTAINER],
            "initContainers": [CONTAINER],
            "overhead": {"memory": "1Gi"},
            "resources": {"limits": {"cpu": "12"}, "requests": {"cpu": "9", "memory": "7Gi"}},
        },
        "status": {
            "phase": "Failed",
            "reason": "Evicted",
            "conditions": [CONDITION],
            "containerStatuses": [CONTAINER_STATUS],
            "initContainerStatuses": [CONTAINER_STATUS],
        },
    },
    "Node": {
        "metadata": METADATA,
        "spec": {
            "unschedulable": True,
            "taints": [{"key": "k", "value": "v", "effect": "NoExecute"}],
        },
        "status": {
            "capacity": {"nvidia.com/gpu": "9"},
            "allocatable": {"nvidia.com/gpu": "8"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "addresses": [{"address": "10.0.0.7"}],
        },
    },
}


def undeclared_or_unset(part: type[Struct], raw: dict[str, Any]) -> set[str]:
    """Fields that the projection names and the object has not, or the other way round."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(part)}
    odd = set(fields) ^ set(raw)
    for name in set(fields) & set(raw):
        for inner in _structs(fields[name].type):
            each = raw[name][0] if isinstance(raw[name], list) else raw[name]
            odd |= {f"{name}.{found}" for found in undeclared_or_unset(inner, each)}
    return odd


def _structs(hint: Any) -> Iterator[type[Struct]]:
    if isinstance(hint, type) and issubclass(hint, Struct):
        yield hint
    for each in typing.get_args(hint):
        yield from _structs(each)


def test_all_declared_fields_of_an_object_are_read() -> None:
    assert undeclared_or_unset(PodObject, FULL["Pod"]) == set()
    assert undeclared_or_unset(NodeObject, FULL["Node"]) == set()
    assert read_node(FULL["Node"]).addresses == ("10.0.0.7",)
    pod = read_pod(FULL["Pod"])
    assert (pod.deleting, pod.reason, pod.disruption) == (True, "Evicted", CONDITION["reason"])
    assert (pod.exit, pod.waiting) == (
        records.Exit(3, "Error", "no"),
        core_v1.Waiting("ImagePullBackOff", "later"),
    )
    assert pod.requests == {"cpu": 9000, "memory": 8 << 30, "nvidia.com/gpu": 16, "pods": 1}
    node = read_node(FULL["Node"])
    assert (node.ready, node.taints) == (True, (Taint("k", "v", "NoExecute"),))
    assert (node.capacity, node.allocatable) == ({"nvidia.com/gpu": 9}, {"nvidia.com/gpu": 8})


@pytest.mark.parametrize(
    "change",
    [
        {"labels": None},
        {"ownerReferences": {}},
        {"conditions": None},
        {"containerStatuses": [7]},
        {"nodeName": 7},
        {"containers": None},
        {"terminated": None},
        {"resources": None},
    ],
    ids=str,
)
def test_undeclared_object_is_reported_with_its_name(change: dict[str, Any]) -> None:
    raw = json.loads(json.dumps(FULL["Pod"]))
    container, state = raw["spec"]["containers"][0], raw["status"]["containerStatuses"][0]["state"]
    for part in (raw["metadata"], raw["spec"], raw["status"], container, state):
        part.update({name: value for name, value in change.items() if name in part})
    found = protobuf.POD.streamed(orjson.dumps(raw))
    assert isinstance(found, Undeclared)
    assert next(iter(change)) in found.why
    assert (found.metadata.name, found.metadata.uid) == ("llm-worker-7-3", "u")
    with pytest.raises(ValueError, match=f"not a Pod: .*{next(iter(change))}"):
        records.answered(raw)
