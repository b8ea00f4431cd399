"""Nodes with invalid values: problems of the Fabric, and no effect on other jobs."""

from __future__ import annotations

import time

import pytest

from integration.operator_site import FABRIC, Floor, Json, Site
from railwright_api import names
from railwright_kube.paths import NODES
from railwright_testbed import waiting
from railwright_testbed.api_client import ApiError

GPU = "nvidia.com/gpu"
BEYOND = "10E"
"""More than 63 bits hold; the API server takes it."""

PUBLISHED_S = 60.0
"""Until a change of a node is in the Fabric, on a machine that does other things too."""


def _problems(site: Site, node: str) -> dict[str, str]:
    status = site.admin.get(FABRIC).get("status", {})
    return {
        each["key"]: each["message"]
        for each in status.get("problems", [])
        if each.get("node") == node
    }


def _until_said(site: Site, node: str, key: str, words: str) -> None:
    waiting.until(
        lambda: words in _problems(site, node).get(key, ""),
        f"{node} {key}: {words}",
        deadline_s=PUBLISHED_S,
        evidence=lambda: str(site.admin.get(FABRIC).get("status")),
    )


def _in_company(site: Site, level: str) -> int:
    """How many nodes share their domain of this level with an earlier one."""
    nodes = site.admin.get(NODES)["items"]
    named = [node["metadata"]["labels"].get(level) for node in nodes]
    domains = site.admin.get(FABRIC)["status"]["domains"]
    counts = {each["level"]: int(each["count"]) for each in domains}
    return sum(1 for name in named if name) - counts.get(level, 0)


def _label(site: Site, node: str, **labels: str | None) -> None:
    changed = {f"{names.GROUP}/{key}": value for key, value in labels.items()}
    site.admin.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": changed}})


def test_node_without_a_rack_is_a_reported_problem(site: Site, floor: Floor) -> None:
    missing, empty, *_ = floor.nodes
    _label(site, missing, rack=None)
    _label(site, empty, rack="")
    unknown = "no source has the domain of this node at this level"
    _until_said(site, missing, names.LABEL_RACK, unknown)
    _until_said(site, empty, names.LABEL_RACK, f"the label is empty: {unknown}")
    # Both racks that are left of four nodes: the one that is whole comes first.
    assert floor.apply("job").until_nodes() == floor.nodes[2:]
    assert floor.apply("rest").until_nodes() == floor.nodes[:2]
    for node in (missing, empty):
        _label(site, node, rack=f"{floor.name}-rack-0")


def test_one_rack_in_two_blocks_is_two_racks(site: Site, floor: Floor) -> None:
    before = _in_company(site, names.LABEL_BLOCK)
    for number, node in enumerate(floor.nodes):
        _label(site, node, block=f"{floor.name}-b{number % 2}", rack=f"{floor.name}-same")
    try:
        waiting.until(
            lambda: _in_company(site, names.LABEL_BLOCK) == before + 2,
            "two blocks of two nodes",
            deadline_s=PUBLISHED_S,
            evidence=lambda: str(site.admin.get(FABRIC).get("status")),
        )
        nodes = floor.apply("job").until_nodes()
        assert nodes in (floor.nodes[0::2], floor.nodes[1::2])
    finally:
        for node in floor.nodes:
            _label(site, node, block=None)


@pytest.mark.parametrize("value", ["r" * 10_240, "r\u0430ck", "a b"], ids=["long", "look", "gap"])
def test_invalid_label_is_refused_by_api_server(site: Site, floor: Floor, value: str) -> None:
    with pytest.raises(ApiError) as refused:
        _label(site, floor.nodes[0], rack=value)
    assert refused.value.status == 422


def _offer(site: Site, node: str, amount: str) -> Json:
    change = {"status": {"allocatable": {GPU: amount}, "capacity": {GPU: amount}}}
    return site.admin.patch(f"/api/v1/nodes/{node}/status", change)


@pytest.mark.parametrize("amount", ["-1", "7500m", "NaN", "8k8", "eight", ""])
def test_invalid_amount_is_refused_by_api_server(site: Site, floor: Floor, amount: str) -> None:
    with pytest.raises(ApiError):
        _offer(site, floor.nodes[0], amount)


def test_impossible_amount_is_reported_and_last_good_counts(site: Site, floor: Floor) -> None:
    """A negative allocatable amount is a problem in the Fabric's status."""
    node = floor.nodes[0]
    _offer(site, node, BEYOND)
    _until_said(site, node, GPU, "the last value that could be read, 8, counts")
    assert floor.apply("job", nodes=4).until_nodes() == floor.nodes
    _offer(site, node, "8")
    waiting.until(
        lambda: GPU not in _problems(site, node), "no problem left", deadline_s=PUBLISHED_S
    )


def test_flapping_amount_is_not_promised(site: Site, floor: Floor) -> None:
    """The job is placed at last, and a node that shrank to 0 takes no further job."""
    node, *others = floor.nodes
    end_s = time.monotonic() + 4.0
    job = floor.apply("job", nodes=2)
    while time.monotonic() < end_s:
        for amount in ("8", BEYOND, "0"):
            _offer(site, node, amount)
            time.sleep(0.1)
    placed = job.until_nodes(None)
    assert len(set(placed)) == 2
    _offer(site, node, "0")
    site.until_nodes_heard()
    waiting.until(lambda: job.status()["phase"] == "Starting", "still there", deadline_s=5)
    assert floor.apply("more", nodes=1).until_nodes()[0] in others
    _offer(site, node, "8")
