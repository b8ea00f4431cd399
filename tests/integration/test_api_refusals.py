"""Refusals of TrainingJobs by the API server, with their messages."""

from __future__ import annotations

from typing import Any

import pytest

from integration import manifests
from integration.manifests import accept, refusal
from railwright_testbed import ControlPlane
from railwright_testbed.api_client import ApiClient

Changes = dict[str, Any]


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("numNodes", 0, ["spec.numNodes", "0", "greater than or equal to 1"]),
        ("numNodes", -1, ["spec.numNodes", "-1", "greater than or equal to 1"]),
        ("numNodes", 10**9, ["spec.numNodes", "1000000000", "less than or equal to 16384"]),
        ("numNodes", None, ["spec.numNodes", "Required"]),
        ("numProcPerNode", 0, ["spec.numProcPerNode", "greater than or equal to 1"]),
        ("numProcPerNode", 65, ["spec.numProcPerNode", "less than or equal to 64"]),
        ("failurePolicy", {"backoffLimit": -1}, ["Policy.backoffLimit", "equal to 0"]),
        (
            "failurePolicy",
            {"backoffLimit": 101},
            ["Policy.backoffLimit", "less than or equal to 100"],
        ),
        ("failurePolicy", {"windowSeconds": 59}, ["Policy.windowSeconds", "equal to 60"]),
        ("failurePolicy", {"windowSeconds": 31_536_001}, ["windowSeconds", "equal to 31536000"]),
        (
            "failurePolicy",
            {"backoffLimit": 4, "windowSeconds": 1199},
            ["spec.failurePolicy.windowSeconds", "windowSeconds is 1199: expected at least 1200"],
        ),
        ("activeDeadlineSeconds", 0, ["spec.activeDeadlineSeconds", "equal to 1"]),
        ("activeDeadlineSeconds", 315_360_001, ["activeDeadlineSeconds", "equal to 315360000"]),
        ("startTimeoutSeconds", 9, ["spec.startTimeoutSeconds", "greater than or equal to 10"]),
        ("ttlSecondsAfterFinished", -1, ["ttlSecondsAfterFinished", "greater than or equal to 0"]),
        ("ttlSecondsAfterFinished", 315_360_001, ["315360001", "less than or equal to 315360000"]),
        ("queue", "q" * 64, ["spec.queue", "63"]),
        ("priorityClassName", "", ["spec.priorityClassName", "at least 1"]),
    ],
)
def test_a_field_out_of_its_range_is_refused_with_the_limit(
    admin: ApiClient, field: str, value: object, words: list[str]
) -> None:
    answer = refusal(admin, manifests.job(spec={field: value}))
    assert all(word in answer for word in words), answer


@pytest.mark.parametrize("amount", ["8.5", "-1", -1, "1e30", "0x8", " 8", "", "1k", "٨", "1000000"])
def test_devices_come_in_whole_numbers(admin: ApiClient, amount: object) -> None:
    answer = refusal(admin, manifests.job(spec={"resourcesPerNode": {"nvidia.com/gpu": amount}}))
    expected = f'nvidia.com/gpu is "{amount}", not a whole number from 0 to 999999, such as 8'
    assert expected in answer, answer


@pytest.mark.parametrize(
    ("resource", "amount", "most", "example"),
    [
        ("cpu", "-1", "100k", "8 or 500m"),
        ("cpu", "many", "100k", "8 or 500m"),
        ("cpu", "1e30", "100k", "8 or 500m"),
        ("cpu", "100001", "100k", "8 or 500m"),
        ("memory", "100m", "256Ti", "64Gi"),
        ("memory", " 8", "256Ti", "64Gi"),
        ("memory", "257Ti", "256Ti", "64Gi"),
        ("ephemeral-storage", "1Zi", "256Ti", "64Gi"),
    ],
)
def test_cpu_and_bytes_are_quantities_within_bounds(
    admin: ApiClient, resource: str, amount: str, most: str, example: str
) -> None:
    answer = refusal(admin, manifests.job(spec={"resourcesPerNode": {resource: amount}}))
    assert f'{resource} is "{amount}", not a quantity from 0 to {most}, such as {example}' in answer


@pytest.mark.parametrize("resource", ["gpu", "GPU", "pods", "hugepages-2Mi", "a/b/c", ""])
def test_unknown_resource_name_is_refused_with_known_ones(admin: ApiClient, resource: str) -> None:
    """The message lists the resource names that are allowed."""
    answer = refusal(admin, manifests.job(spec={"resourcesPerNode": {resource: 1}}))
    assert f"{resource} is no resource of a pod: use cpu, memory" in answer, answer
    assert "such as nvidia.com/gpu" in answer


def test_at_most_sixteen_resources_are_taken(admin: ApiClient) -> None:
    many = {f"example.com/d{number}": 1 for number in range(17)}
    answer = refusal(admin, manifests.job(spec={"resourcesPerNode": many}))
    assert "spec.resourcesPerNode: Too many: 17: must have at most 16" in answer, answer


@pytest.mark.parametrize(
    "amounts",
    [
        {"cpu": "500m", "memory": "64Gi", "nvidia.com/gpu": 8},
        {"cpu": 96, "memory": "256Ti", "ephemeral-storage": "1.5G", "nvidia.com/gpu": "8"},
        {"cpu": "1e3", "memory": "0.5Gi", "rdma/hca": 0},
        {},
    ],
)
def test_sound_amounts_are_taken(admin: ApiClient, amounts: Changes) -> None:
    stored = accept(admin, manifests.job(spec={"resourcesPerNode": amounts}))
    assert stored["spec"]["resourcesPerNode"] == amounts


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("x" * 53, ["has 53 characters, at most 52", "job-attempt-rank", "within 63"]),
        ("my.job", ['"my.job" holds a dot', 'use "my-job"']),
        ("My_Job", ["metadata.name", "lowercase"]),
    ],
)
def test_a_name_that_cannot_name_pods_is_refused(
    admin: ApiClient, name: str, words: list[str]
) -> None:
    answer = refusal(admin, manifests.job(name))
    assert all(word in answer for word in words), answer


def test_a_typo_is_refused_by_kubectl(control_plane: ControlPlane, namespace: str) -> None:
    manifest = manifests.job(spec={"replcias": 2})
    with pytest.raises(Exception, match=r'unknown field "spec\.replcias"'):
        control_plane.kubectl("create", "-n", namespace, "-f", "-", stdin=manifests.text(manifest))


def test_ten_thousand_environment_variables_are_refused(admin: ApiClient) -> None:
    env = [{"name": f"V{number}", "value": "x"} for number in range(10_000)]
    answer = refusal(admin, manifests.job(container={"env": env}))
    assert "containers[0].env: Too many: 10000: must have at most 256 items" in answer, answer[:500]


def test_a_megabyte_of_arguments_is_refused(admin: ApiClient) -> None:
    answer = refusal(admin, manifests.job(container={"args": ["x" * 1_000_000]}))
    assert "containers[0].args[0]: Too long: may not be more than 32768 bytes" in answer, answer[
        :500
    ]
    answer = refusal(admin, manifests.job(container={"args": ["x" * 100] * 10_000}))
    assert "containers[0].args: Too many: 10000: must have at most 256 items" in answer, answer[
        :500
    ]
