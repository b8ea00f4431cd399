"""Which pods keep their node busy, so that no survey measures it."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from fixtures import office, protobufs
from railwright_controllers.watch import pods
from railwright_controllers.watch.pods import RunningPod
from railwright_kube import protobuf
from railwright_kube.projections import Undeclared
from railwright_kube.protobuf import PodList

GPU = {"nvidia.com/gpu": "8"}
OURS = {"railwright.dev/job-uid": "11111111-1111-1111-1111-111111111111"}


def raw_pod(
    *containers: dict[str, Any], labels: dict[str, str] | None = None, **parts: Any
) -> dict[str, Any]:
    metadata = {"uid": "u", "namespace": "team", "name": "pod", "resourceVersion": "41"}
    spec = {"containers": [*containers] or [{"name": "main"}], "nodeName": "n1"}
    return {
        "metadata": metadata | {"labels": labels or {}},
        "spec": spec | parts.pop("spec", {}),
        "status": {"phase": "Running"} | parts.pop("status", {}),
    }


def container(**resources: dict[str, str]) -> dict[str, Any]:
    return {"name": "main", "resources": resources}


def read(raw: dict[str, Any]) -> RunningPod:
    """The record that a list and a stream both give."""
    (item,) = protobuf.POD.page(protobufs.page(PodList, [raw])).items
    listed, streamed = protobuf.POD.listed(item), protobuf.POD.streamed(orjson.dumps(raw))
    assert not isinstance(listed, Undeclared)
    assert not isinstance(streamed, Undeclared), streamed.why
    assert pods.record(listed) == pods.record(streamed)
    return pods.record(listed)


@pytest.mark.parametrize(
    "raw",
    [
        raw_pod(container(requests=GPU)),
        raw_pod(container(limits={"amd.com/gpu": "1"})),
        raw_pod({"name": "main"}, container(requests={"cpu": "1", "example.com/nic": "1"})),
        raw_pod({"name": "main"}, spec={"initContainers": [container(requests=GPU)]}),
        raw_pod(labels=OURS),
        raw_pod(container(requests=GPU), status={"phase": "Pending"}),
        raw_pod(container(requests=GPU), status={"phase": "Unknown"}),
    ],
    ids=["request", "limit", "second container", "init container", "ours", "pending", "unknown"],
)
def test_pod_that_trains_keeps_its_node_busy(raw: dict[str, Any]) -> None:
    assert read(raw).occupied == "n1"


@pytest.mark.parametrize(
    "raw",
    [
        raw_pod(),
        raw_pod(container(requests={"cpu": "8", "memory": "1Gi", "hugepages-2Mi": "4Mi"})),
        raw_pod(container(requests={"nvidia.com/gpu": "0"})),
        raw_pod(labels={"railwright.dev/fabric": "default"}),
        raw_pod(container(requests=GPU), spec={"nodeName": ""}),
        raw_pod(container(requests=GPU), labels=OURS, status={"phase": "Succeeded"}),
        raw_pod(container(requests=GPU), labels=OURS, status={"phase": "Failed"}),
    ],
    ids=["plain", "no device", "zero", "another label", "unbound", "succeeded", "failed"],
)
def test_other_pod_leaves_its_node_idle(raw: dict[str, Any]) -> None:
    assert read(raw).occupied == ""


def test_record_has_the_node_of_any_pod() -> None:
    """The tokens of node agents are of pods without devices."""
    agent = read(raw_pod())
    assert (agent.uid, agent.rv, agent.node, agent.terminal) == ("u", 41, "n1", False)
    assert read(raw_pod(status={"phase": "Failed"})).terminal


def test_node_is_busy_until_its_last_pod_ended() -> None:
    """From the informer of pods on."""
    informers = office.informers_of(None)

    def arrive(version: int, uid: str, **parts: Any) -> frozenset[str]:
        raw = raw_pod(container(requests=GPU), **parts)
        raw["metadata"] |= {"uid": uid, "resourceVersion": str(version)}
        informers.pods.absorb(read(raw))
        return informers.busy.names()

    assert arrive(1, "a", spec={"nodeName": ""}) == set()
    assert arrive(2, "a") == {"n1"}
    assert arrive(3, "b") == {"n1"}
    assert arrive(4, "c", spec={"nodeName": "n2"}) == {"n1", "n2"}
    assert arrive(5, "a", status={"phase": "Succeeded"}) == {"n1", "n2"}
    assert arrive(6, "b", status={"phase": "Failed"}) == {"n2"}
    informers.pods._put(informers.pods.records["c"], None)
    assert informers.busy.names() == set()
