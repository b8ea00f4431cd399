"""What may change in a job and when: its shape only while it is suspended."""

from __future__ import annotations

from typing import Any

import pytest

from integration import manifests
from railwright_api import names
from railwright_testbed.api_client import ApiClient, ApiError

Changes = dict[str, Any]

POD = {"containers": [{"name": "train", "image": "python:3.13", "command": ["python3", "t.py"]}]}
SHAPE: list[tuple[str, Changes, str]] = [
    ("queue", {"queue": "other"}, "from default to other"),
    ("priorityClassName", {"priorityClassName": "high"}, "from none to high"),
    ("roles", manifests.roles(replicas=4), "while the job is not suspended"),
    ("roles", manifests.roles(processesPerReplica=8), "while the job is not suspended"),
    ("roles", manifests.roles(name="other"), "while the job is not suspended"),
    ("roles", manifests.roles(template={"spec": POD}), "while the job is not suspended"),
]


class Job:
    """A stored job that tests change by merge patches."""

    def __init__(self, client: ApiClient, namespace: str) -> None:
        self._client = client
        self._path = f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.TRAINING_JOBS}"
        client.post(self._path, manifests.job())

    def change(self, **spec: object) -> Changes:
        return self._client.patch(f"{self._path}/train", {"spec": spec})

    def refusal(self, **spec: object) -> str:
        with pytest.raises(ApiError) as caught:
            self.change(**spec)
        assert caught.value.status == 422, caught.value
        return str(caught.value)


@pytest.fixture
def job(admin: ApiClient, namespace: str) -> Job:
    return Job(admin, namespace)


@pytest.mark.parametrize(("field", "change", "words"), SHAPE)
def test_spec_is_immutable_while_job_is_not_suspended(
    job: Job, field: str, change: Changes, words: str
) -> None:
    answer = job.refusal(**change)
    assert f"spec.{field}" in answer, answer
    assert f"{field} cannot change" in answer
    assert words in answer
    assert f"set suspend: true and apply, then change {field}, then set suspend: false" in answer


@pytest.mark.parametrize(("field", "change", "words"), SHAPE)
def test_suspend_then_change_then_resume_works(
    job: Job, field: str, change: Changes, words: str
) -> None:
    job.change(suspend=True)
    job.change(**change)
    resumed = job.change(suspend=False)
    assert resumed["spec"][field] != manifests.job()["spec"].get(field), words
    assert f"{field} cannot change" in job.refusal(**{field: manifests.job()["spec"].get(field)})


def test_suspending_and_changing_in_one_step_is_refused(job: Job) -> None:
    answer = job.refusal(suspend=True, **manifests.roles(replicas=4))
    assert "roles cannot change" in answer


def test_changing_and_resuming_in_one_step_works(job: Job) -> None:
    job.change(suspend=True)
    stored = job.change(suspend=False, **manifests.roles(replicas=4))
    assert stored["spec"]["roles"][0]["replicas"] == 4


def test_budget_and_time_to_live_change_at_any_time(job: Job) -> None:
    changed = job.change(failurePolicy={"backoffLimit": 7}, ttlSecondsAfterFinished=60)
    assert changed["spec"]["failurePolicy"]["backoffLimit"] == 7
    assert changed["spec"]["ttlSecondsAfterFinished"] == 60


def test_unknown_template_field_is_immutable_too(job: Job) -> None:
    """The schema keeps fields that Railwright does not have, and refuses their change."""
    host = manifests.roles({"hostNetwork": True})
    assert "roles cannot change" in job.refusal(**host)
    job.change(suspend=True)
    job.change(**host, suspend=False)
    assert "roles cannot change" in job.refusal(**manifests.roles({"hostNetwork": False}))
    assert "roles cannot change" in job.refusal(**manifests.roles())


def test_the_largest_job_is_taken_and_can_still_be_changed(
    admin: ApiClient, namespace: str
) -> None:
    env = [{"name": f"NAME_{number}", "value": "v" * 400} for number in range(256)]
    containers: list[dict[str, Any]] = [
        {"name": f"c{number}", "image": "i", "command": ["c"], "env": env} for number in range(8)
    ]
    devices = {f"example.com/device-{number}": "999999" for number in range(16)}
    containers[0]["resources"] = {"limits": devices}
    role = {"replicas": 16_384, "processesPerReplica": 64}
    labels = {"labels": {f"team-{number}/name": "x" * 63 for number in range(64)}}
    path = manifests.path(names.TRAINING_JOBS, namespace)
    admin.post(path, manifests.job(role=role, pod={"containers": containers}, metadata=labels))
    admin.patch(f"{path}/train", {"spec": {"failurePolicy": {"backoffLimit": 9}}})
    with pytest.raises(ApiError, match="roles cannot change"):
        admin.patch(f"{path}/train", {"spec": manifests.roles(replicas=1)})


def test_order_of_containers_is_immutable_too(job: Job) -> None:
    first = POD["containers"][0]
    second = {"name": "side", "image": "i", "command": ["s"]}
    job.change(suspend=True)
    job.change(suspend=False, **manifests.roles({"containers": [first, second]}))
    answer = job.refusal(**manifests.roles({"containers": [second, first]}))
    assert "roles cannot change" in answer


def test_order_of_roles_is_immutable_too(job: Job) -> None:
    """The API server takes lists with keys as equal in any order."""
    first = manifests.roles(name="first")["roles"]
    second = manifests.roles(name="second")["roles"]
    job.change(suspend=True)
    job.change(suspend=False, roles=[*first, *second])
    assert "roles cannot change" in job.refusal(roles=[*second, *first])
