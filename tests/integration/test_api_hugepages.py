"""Huge pages in the containers of a job: taken and refused as in a pod, with what to do instead."""

from __future__ import annotations

from typing import Any

import pytest

from integration import manifests
from integration.manifests import accept, refusal
from railwright_testbed.api_client import ApiClient, ApiError

Resources = dict[str, Any]

SMALL, LARGE = "hugepages-2Mi", "hugepages-1Gi"


def _job(resources: Resources) -> manifests.Manifest:
    return manifests.job(container={"resources": resources})


def _pod_refusal(admin: ApiClient, resources: Resources) -> int:
    """The status with which the API server refuses a pod with these resources; 0 if it does not."""
    container = {"name": "train", "image": "i", "resources": resources}
    pod = {"metadata": {"name": "huge"}, "spec": {"containers": [container]}}
    try:
        admin.post(f"/api/v1/namespaces/default/pods{manifests.ASK}", pod)
    except ApiError as error:
        return error.status
    return 0


@pytest.mark.parametrize(
    "resources",
    [
        {"limits": {SMALL: "4Mi", "memory": "1Gi"}},
        {"limits": {SMALL: "4Mi", "cpu": 1}},
        {"limits": {SMALL: "4Mi"}, "requests": {"cpu": "100m"}},
        {"limits": {SMALL: "4Mi", "memory": 1}, "requests": {SMALL: 4194304}},
        {"limits": {SMALL: "1.5Gi", LARGE: "100Gi", "memory": "1Gi"}},
        {"limits": {SMALL: 0, LARGE: "256Ti", "memory": "1Gi"}},
        {"limits": {"hugepages-64Ki": "0.25Mi", "hugepages-3M": "9e6", "cpu": 1}},
        {"limits": {"hugepages-2097152": "4Mi", "hugepages-99999Gi": 0, "cpu": 1}},
        {"limits": {SMALL: "0.0078125Gi", "memory": 1}, "requests": {SMALL: "8Mi", "memory": 1}},
    ],
)
def test_huge_pages_are_taken_as_in_a_pod(admin: ApiClient, resources: Resources) -> None:
    assert _pod_refusal(admin, resources) == 0
    stored = accept(admin, _job(resources))
    (container,) = stored["spec"]["roles"][0]["template"]["spec"]["containers"]
    assert container["resources"] == resources


@pytest.mark.parametrize(
    ("resource", "amount", "words"),
    [
        (SMALL, "3Mi", "not a multiple of 2Mi: the nearest are 2097152 and 4194304"),
        (SMALL, 1, "not a multiple of 2Mi: the nearest are 0 and 2097152"),
        (SMALL, "0.0001Ki", "not a multiple of 2Mi: the nearest are 0 and 2097152"),
        (LARGE, "1.5Gi", "not a multiple of 1Gi: the nearest are 1073741824 and 2147483648"),
        (LARGE, "255.9Ti", "the nearest are 281364381302784 and 281365455044608"),
        (SMALL, "many", "not a quantity from 0 to 256Ti, such as 2Mi"),
        (SMALL, "-2Mi", "not a quantity from 0 to 256Ti, such as 2Mi"),
        (SMALL, "2000m", "not a quantity from 0 to 256Ti, such as 2Mi"),
    ],
)
def test_a_part_of_a_huge_page_is_refused(
    admin: ApiClient, resource: str, amount: object, words: str
) -> None:
    resources = {"limits": {resource: amount, "memory": "1Gi"}}
    assert _pod_refusal(admin, resources) in (400, 422)
    answer = refusal(admin, _job(resources))
    assert f'{resource} is "{amount}", ' in answer, answer
    assert words in answer, answer
    assert "evaluation error" not in answer


def test_more_huge_pages_than_a_node_has_are_refused(admin: ApiClient) -> None:
    answer = refusal(admin, _job({"limits": {SMALL: "257Ti", "memory": "1Gi"}}))
    assert f'{SMALL} is "257Ti", not a quantity from 0 to 256Ti, such as 2Mi' in answer


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        ({"requests": {SMALL: "4Mi", "cpu": 1}}, f"requests has {SMALL}: expected the same amount"),
        (
            {"requests": {SMALL: "4Mi", "cpu": 1}, "limits": {SMALL: "8Mi"}},
            f"requests has {SMALL}: expected the same amount in limits, as devices and huge pages",
        ),
        (
            {"limits": {SMALL: "4Mi", "nvidia.com/gpu": 8}},
            f"limits has {SMALL} without cpu and memory: expected one of them beside it, such as "
            "memory 64Gi",
        ),
        ({"limits": {SMALL: 0}, "requests": {SMALL: 0}}, f"limits has {SMALL} without cpu"),
    ],
)
def test_huge_pages_shared_or_alone_are_refused(
    admin: ApiClient, resources: Resources, words: str
) -> None:
    assert _pod_refusal(admin, resources) == 422
    assert words in refusal(admin, _job(resources))


@pytest.mark.parametrize(
    "size", ["", "0", "2mi", "Mi", "1.5Mi", "+2Mi", "x", "100m", "100000Gi", "2Ti"]
)
def test_unknown_page_size_is_refused(admin: ApiClient, size: str) -> None:
    resources = {"limits": {f"hugepages-{size}": 0, "memory": "1Gi"}}
    answer = refusal(admin, _job(resources))
    assert f"hugepages-{size} is no resource of a pod" in answer, answer
    assert "hugepages-<size>, such as hugepages-2Mi" in answer
