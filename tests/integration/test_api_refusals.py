"""Refusals of TrainingJobs by the API server, with their messages."""

from __future__ import annotations

from typing import Any

import pytest

from integration import manifests
from integration.manifests import accept, refusal
from railwright_testbed import ControlPlane
from railwright_testbed.api_client import ApiClient

Changes = dict[str, Any]


def _requesting(amounts: Changes) -> Changes:
    """A job whose container has these limits, which are its requests then."""
    return manifests.job(container={"resources": {"limits": amounts}})


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("replicas", 0, ["spec.roles[0].replicas", "0", "greater than or equal to 1"]),
        ("replicas", -1, ["spec.roles[0].replicas", "-1", "greater than or equal to 1"]),
        ("replicas", 10**9, ["replicas", "1000000000", "less than or equal to 16384"]),
        ("replicas", None, ["spec.roles[0].replicas", "Required"]),
        ("processesPerReplica", 0, ["processesPerReplica", "greater than or equal to 1"]),
        ("processesPerReplica", 65, ["processesPerReplica", "less than or equal to 64"]),
        ("name", "Worker", ["spec.roles[0].name", "should match"]),
        ("name", "w" * 33, ["spec.roles[0].name", "32"]),
        ("name", None, ["spec.roles[0].name", "Required"]),
        ("template", None, ["spec.roles[0].template", "Required"]),
    ],
)
def test_role_field_out_of_its_range_is_refused(
    admin: ApiClient, field: str, value: object, words: list[str]
) -> None:
    answer = refusal(admin, manifests.job(role={field: value}))
    assert all(word in answer for word in words), answer


def _roles(*names: str, **changes: Any) -> list[Changes]:
    return [manifests.roles(name=name, **changes)["roles"][0] for name in names]


@pytest.mark.parametrize(
    ("roles", "words"),
    [
        ([], "should have at least 1 items"),
        (None, "spec.roles: Required"),
        (_roles("a", "a"), "Duplicate value"),
        (_roles(*"abcdefghi"), "must have at most 8 items"),
    ],
)
def test_job_has_one_to_eight_roles(admin: ApiClient, roles: object, words: str) -> None:
    assert words in refusal(admin, manifests.job(spec={"roles": roles}))


def test_eight_roles_of_one_group_are_taken(admin: ApiClient) -> None:
    """Also the longest template in each."""
    env = [{"name": f"NAME_{number}", "value": "v" * 400} for number in range(64)]
    template = manifests.job(container={"env": env})["spec"]["roles"][0]["template"]
    roles = _roles(*"abcdefgh", group="all", template=template)
    assert len(accept(admin, manifests.job(spec={"roles": roles}))["spec"]["roles"]) == 8


def test_longest_role_name_counts_for_the_name_of_pods(admin: ApiClient) -> None:
    roles = _roles("worker", "e" * 32)
    answer = refusal(admin, manifests.job("x" * 18, spec={"roles": roles}))
    assert "have 50 characters, at most 49" in answer
    assert accept(admin, manifests.job("x" * 17, spec={"roles": roles}))


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
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
    answer = refusal(admin, _requesting({"nvidia.com/gpu": amount}))
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
    answer = refusal(admin, _requesting({resource: amount}))
    assert f'{resource} is "{amount}", not a quantity from 0 to {most}, such as {example}' in answer


@pytest.mark.parametrize("resource", ["gpu", "GPU", "pods", "hugepages-", "a/b/c", ""])
def test_unknown_resource_name_is_refused_with_known_ones(admin: ApiClient, resource: str) -> None:
    """The message lists the resource names that are allowed."""
    answer = refusal(admin, _requesting({resource: 1}))
    assert f"{resource} is no resource of a pod: use cpu, memory" in answer, answer
    assert "hugepages-<size>, such as hugepages-2Mi" in answer
    assert "such as nvidia.com/gpu" in answer


def test_at_most_sixteen_resources_are_taken(admin: ApiClient) -> None:
    many = {f"example.com/d{number}": 1 for number in range(17)}
    answer = refusal(admin, _requesting(many))
    assert "resources.limits: Too many: 17: must have at most 16" in answer, answer


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
    stored = accept(admin, _requesting(amounts))
    (container,) = stored["spec"]["roles"][0]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == amounts


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        ({"requests": {"nvidia.com/gpu": 8}}, "requests has nvidia.com/gpu"),
        (
            {"requests": {"nvidia.com/gpu": 8}, "limits": {"nvidia.com/gpu": 4}},
            "expected the same amount in limits",
        ),
    ],
)
def test_devices_requested_without_equal_limits_are_refused(
    admin: ApiClient, resources: Changes, words: str
) -> None:
    """The API server would refuse the pods."""
    assert words in refusal(admin, manifests.job(container={"resources": resources}))


def test_requests_below_limits_are_taken(admin: ApiClient) -> None:
    resources = {
        "requests": {"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": "8"},
        "limits": {"cpu": 2, "memory": "2Gi", "nvidia.com/gpu": 8},
    }
    assert accept(admin, manifests.job(container={"resources": resources}))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("x" * 44, ["have 50 characters, at most 49", "job-role-index-attempt", "within 63"]),
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
