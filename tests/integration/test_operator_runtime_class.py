"""Jobs with a RuntimeClass are placed with what its admission adds to their pods."""

from __future__ import annotations

from typing import Any

from integration import operator_site
from integration.operator_site import COMMAND, Floor, Job, Site

CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"


def _create(floor: Floor, name: str, **fields: Any) -> str:
    """Create a RuntimeClass for this floor, and return its name."""
    full = f"{floor.name}-{name}"
    body = {"metadata": {"name": full}, "handler": "kata", **fields}
    floor.site.admin.post(CLASSES, body)
    return full


def _apply(floor: Floor, name: str, runtime_class: str, **options: Any) -> Job:
    main = {"name": "train", "image": "i", "command": list(COMMAND)}
    template = {"spec": {"containers": [main], "runtimeClassName": runtime_class}}
    return floor.apply(name, nodes=1, gpus=1, template=template, **options)


def test_overhead_counts_before_pods_exist(site: Site) -> None:
    """A node has 192 CPUs: two jobs of 96 fit, and not with the overhead of both."""
    with operator_site.floor_on(site, (1,)) as floor:
        overhead = {"podFixed": {"cpu": "250m", "memory": "64Mi"}}
        sandboxed = _create(floor, "sandboxed", overhead=overhead)
        whole = _apply(floor, "whole", sandboxed, resources={"cpu": 192})
        message = whole.until_reason("NeverFits")["message"]
        assert "192.25 cpu, 64Mi memory" in message, message
        first = _apply(floor, "first", sandboxed, resources={"cpu": 96})
        first.until_bound()
        assert first.pods()[0]["spec"]["overhead"] == overhead["podFixed"]
        second = _apply(floor, "second", sandboxed, resources={"cpu": 96})
        second.until_reason("NotEnoughNodes")
        assert not second.pods()
        second.delete()
        _apply(floor, "third", sandboxed, resources={"cpu": "95500m"}).until_bound()


def test_pods_go_where_the_runtime_class_selects(site: Site) -> None:
    """The class adds its node selector and its tolerations to those of the pods."""
    with operator_site.floor_on(site, (2,)) as floor:
        plain, kata = floor.nodes
        site.plane.kubectl("label", "node", kata, "example.com/kata=yes")
        site.plane.kubectl("taint", "node", kata, "example.com/kata=yes:NoSchedule")
        site.until_nodes_heard()
        scheduling = {
            "nodeSelector": {"example.com/kata": "yes"},
            "tolerations": [{"key": "example.com/kata", "operator": "Exists"}],
        }
        isolated = _create(floor, "isolated", scheduling=scheduling)
        assert _apply(floor, "isolated", isolated).until_nodes() == [kata]
        assert floor.apply("plain", nodes=1).until_nodes() == [plain]


def test_selectors_that_conflict_are_published(floor: Floor) -> None:
    """Those of the job and of its class, before a pod is created."""
    scheduling = {"nodeSelector": {operator_site.FLOOR_LABEL: "other"}}
    job = _apply(floor, "job", _create(floor, "elsewhere", scheduling=scheduling))
    message = job.until_reason("RuntimeClassRefused")["message"]
    assert f"it selects nodes with {operator_site.FLOOR_LABEL}=other" in message
    assert not job.pods()


def test_missing_runtime_class_is_named_with_existing_ones(floor: Floor) -> None:
    existing = _create(floor, "existing")
    job = _apply(floor, "job", f"{floor.name}-late")
    message = job.until_reason("RuntimeClassNotFound")["message"]
    assert repr(f"{floor.name}-late") in message
    assert existing in message
    _create(floor, "late")
    job.until_bound()
