"""Whether jobs fit before they are submitted, by the decision of the scheduler."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from railwright_cli import devices
from railwright_cli.api_objects import ConditionView, MetadataView, PriorityClassView
from railwright_cli.feasibility import (
    RuntimeClassView,
    SchedulingSite,
    convert,
    decide_jobs,
    scheduler_node,
)
from railwright_cli.inventory import (
    NodeSpecView,
    NodeStatusView,
    NodeUse,
    NodeView,
    TaintView,
    node_use,
)
from railwright_conversion import amounts
from railwright_operator.write import rendering
from railwright_scheduler.model.snapshot import Node, Taint, Unavailable
from railwright_scheduler.policy.queue_window import QueueWindow

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GPUS = {"nvidia.com/gpu": "8", "cpu": "64", "pods": "110"}
LEVELS = ("example.com/block", "example.com/rack")


def _use(number: int, *, used: int = 0, gpus: str = "8", cordoned: bool = False) -> NodeUse:
    ready, labels = ConditionView("Ready", "True"), {"half": str(number // 2)}
    status = NodeStatusView(GPUS, GPUS | {"nvidia.com/gpu": gpus}, (ready,))
    metadata = MetadataView(f"n{number}", labels=labels)
    use = node_use(NodeView(metadata, NodeSpecView(unschedulable=cordoned), status))
    use.domains = ("b", f"r{number // 2}")
    use.used = _amounts(used)
    return use


def _node(number: int, *, used: int = 0) -> Node:
    return scheduler_node(_use(number, used=used), LEVELS, NOW)


def _amounts(gpus: int) -> Any:
    return Counter({"nvidia.com/gpu": gpus, "pods": 1} if gpus else {})


def _job(name: str, nodes: int, *, gpus: int = 8, **spec: Any) -> dict[str, Any]:
    container = {
        "name": "c",
        "image": "i",
        "command": ["x"],
        "resources": {"limits": {"nvidia.com/gpu": gpus}},
    }
    pod = {"containers": [container], **spec.pop("pod", {})}
    role = {"name": "worker", "replicas": nodes, "template": {"spec": pod}}
    metadata = {"uid": name, "namespace": "team", "name": name}
    metadata["creationTimestamp"] = "2026-01-01T00:00:00Z"
    kind = {"apiVersion": "railwright.dev/v1alpha1", "kind": "TrainingJob"}
    return {**kind, "metadata": metadata, "spec": {"queue": "default", "roles": [role], **spec}}


def _site(**fields: Any) -> SchedulingSite:
    nodes = (*(_node(number) for number in range(3)), _node(3, used=8))
    return SchedulingSite(**{"levels": LEVELS, "nodes": nodes, "queues": ("default",)} | fields)


def _texts(site: SchedulingSite, *jobs: dict[str, Any]) -> list[str]:
    found, is_counted = decide_jobs(jobs, site)
    assert is_counted
    return [each.text for each in found]


def test_jobs_of_a_file_are_decided_one_after_the_other() -> None:
    first, second, never = _texts(_site(), _job("a", 2), _job("b", 2), _job("c", 5))
    assert first == "fits now: 2 nodes, 1 block, 1 rack"
    assert second.startswith("waits: NotEnoughNodes: needs 2 nodes with 8 nvidia.com/gpu each; 1/4")
    assert never.startswith("can never start as it is: NeverFits: needs 5 nodes with 8 ")


def test_suspended_jobs_take_nodes_from_no_other() -> None:
    """Each is decided as if it alone were resumed, behind the jobs that wait."""
    jobs = (_job("a", 3, suspend=True), _job("b", 2), _job("c", 2, suspend=True))
    resumed = "is suspended; when resumed: "
    assert _texts(_site(), *jobs) == [
        f"{resumed}fits now: 3 nodes, 1 block, 2 racks",
        "fits now: 2 nodes, 1 block, 1 rack",
        f"{resumed}fits now: 2 nodes, 1 block, 1 rack",
    ]
    (found,), _ = decide_jobs([_job("d", 5, suspend=True)], _site())
    assert found.is_never
    assert found.text.startswith(f"{resumed}can never start as it is: NeverFits: ")


def test_jobs_that_wait_ahead_take_nodes_first() -> None:
    ahead, reason = convert(_job("ahead", 4), _site())
    assert reason is None
    for name in ("a", "z"):  # Also one that would come first of the jobs of that second.
        (text,) = _texts(_site(ahead=(ahead,)), _job(name, 2))
        assert text.startswith(
            "waits: BlockedByReservation: needs 2 nodes and 3 are available, but"
        )
    urgent = PriorityClassView(MetadataView("urgent"), 7)
    site = _site(ahead=(ahead,), classes=(urgent,))
    assert _texts(site, _job("z", 2, priorityClassName="urgent")) == [
        "fits now: 2 nodes, 1 block, 1 rack"
    ]


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"queue": "none"}, "QueueNotFound: queue 'none' does not exist; existing queues: default"),
        ({"priorityClassName": "none"}, "PriorityClassNotFound: PriorityClass 'none'"),
        ({"pod": {"runtimeClassName": "none"}}, "RuntimeClassNotFound: RuntimeClass 'none'"),
        ({"topology": {"required": "none"}}, "TierNotFound: no tier 'none'"),
        ({"pod": {"nodeSelector": {"a": "b"}}}, "NeverFits: needs 1 node with 8 nvidia.com/gpu"),
        ({"gpus": "x"}, "Unreadable: "),
    ],
)
def test_job_that_can_never_start_has_the_reason(spec: dict[str, Any], reason: str) -> None:
    (found,), _ = decide_jobs([_job("a", 1, **spec)], _site())
    assert found.is_never
    assert found.text.startswith(f"can never start as it is: {reason}")


def test_runtime_class_adds_to_what_pods_request() -> None:
    heavy = RuntimeClassView(MetadataView("vm"), {"podFixed": {"cpu": "65"}})
    site = _site(runtime_classes={"vm": heavy})
    (found,), _ = decide_jobs([_job("a", 1, pod={"runtimeClassName": "vm"})], site)
    assert "65 cpu; at most 64 cpu on any node" in found.text, found.text


def test_queue_that_one_cycle_cannot_evaluate_is_not_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    window = functools.partial(QueueWindow, limit=1)
    monkeypatch.setattr("railwright_scheduler.policy.decide.QueueWindow", window)
    ahead = [convert(_job(f"a{at:02}", at % 3 + 1, gpus=at % 7 + 1), _site())[0] for at in range(9)]
    (found,), is_counted = decide_jobs([_job("z", 3)], _site(ahead=tuple(ahead)))
    assert not is_counted
    assert found.text == "fits now: 3 nodes, 1 block, 2 racks"


def test_node_is_what_the_operator_makes_of_it() -> None:
    taints = (TaintView("node.kubernetes.io/unschedulable", "NoSchedule"), TaintView("a", "x", "v"))
    spec = NodeSpecView(unschedulable=True, taints=taints)
    use = node_use(NodeView(MetadataView("n"), spec, NodeStatusView(GPUS, GPUS)))
    found = scheduler_node(use, LEVELS, NOW)
    assert (found.unavailable, found.recently_lost) == (Unavailable.UNREADY, False)
    assert [(taint.key, taint.value) for taint in found.taints] == [("a", "v")]
    lost = ConditionView("Ready", "Unknown", last_transition_time=NOW)
    use = node_use(NodeView(MetadataView("n"), spec, NodeStatusView(GPUS, GPUS, (lost,))))
    assert scheduler_node(use, LEVELS, NOW).recently_lost


def test_devices_have_what_is_free_available_held_and_unusable() -> None:
    """Of the nodes that the job may use: the fifth is of the other half."""
    uses = [
        _use(0, used=8),
        _use(0, used=6),
        _use(1, gpus="7"),
        _use(1, used=2, cordoned=True),
        _use(2, used=8),
    ]
    for at, (name, held) in enumerate([("t/a", 8), ("t/b", 4), ("t/c", 0), ("t/d", 2), ("t/e", 8)]):
        uses[at].jobs = {name: _amounts(held)}
    uses[1].foreign = _amounts(2)
    site = _site(nodes=tuple(scheduler_node(use, LEVELS, NOW) for use in uses))
    job, _ = convert(_job("a", 4, gpus=4, pod={"nodeSelector": {"half": "0"}}), site)
    assert devices.device_rows(job, site, uses) == [
        {
            "device": "nvidia.com/gpu",
            "requested": 16,
            "free": 9,
            "available": 4,
            "inUse": 16,
            "unusable": 7,
            "heldBy": ["8 t/a", "4 t/b", "2 pods of no job", "2 others"],
        }
    ]


def test_devices_of_a_tainted_node_are_unusable_until_it_passes() -> None:
    uses = [_use(0), _use(0), _use(0)]
    nodes = [scheduler_node(use, LEVELS, NOW) for use in uses]
    for at, key in enumerate(("node.kubernetes.io/disk-pressure", "railwright.dev/quarantine"), 1):
        nodes[at] = replace(nodes[at], taints=(Taint(key, "", "NoSchedule"),))
    tolerated = {"key": "node.kubernetes.io/disk-pressure", "operator": "Exists"}
    for pod, free in (({}, 8), ({"tolerations": [tolerated]}, 16)):
        site = _site(nodes=tuple(nodes))
        job, _ = convert(_job("a", 3, gpus=8, pod=pod), site)
        (row,) = devices.device_rows(job, site, uses)
        assert (row["free"], row["available"], row["unusable"]) == (free, free, 24 - free)


def test_launcher_adds_nothing_to_what_pods_request() -> None:
    """So the template is enough, without the image and the address of the launcher."""
    job = _job("a", 1, pod={"initContainers": [{"name": "i", "image": "i"}]})
    template = job["spec"]["roles"][0]["template"]["spec"]
    template["containers"][0]["resources"]["requests"] = {"cpu": "3", "memory": "4Gi"}
    rendered = rendering.sample_pod(job, 0, rendering.Launcher("image", "http://operator"))["spec"]
    asked = [amounts.requested(amounts.asked(each)) for each in (rendered, template)]
    assert asked[0] == asked[1]
