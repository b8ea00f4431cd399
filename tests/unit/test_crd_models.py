"""Objects through the models: tolerant of the unknown, exact about the known."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from railwright_api import names
from railwright_api.failure_policy import FailurePolicy
from railwright_api.schema import NODES_MAX
from railwright_api.training_job import TrainingJob
from railwright_api.training_job_status import Progress, TrainingJobStatus
from railwright_conversion import bounds
from railwright_operator.watch.job_records import ATTEMPT_MAX

POD: dict[str, Any] = {
    "containers": [
        {
            "name": "train",
            "image": "python:3.12",
            "command": ["python3", "train.py"],
            "securityContext": {"runAsUser": 1000},
        }
    ],
    "serviceAccountName": "trainer",
}
STORED: dict[str, Any] = {
    "apiVersion": names.API_VERSION,
    "kind": "TrainingJob",
    "metadata": {
        "name": "train",
        "namespace": "default",
        "uid": "u",
        "resourceVersion": "7",
        "generation": 3,
        "creationTimestamp": "2026-01-02T03:04:05Z",
        "managedFields": [{"manager": "kubectl"}],
    },
    "spec": {
        "roles": [{"name": "worker", "replicas": 2, "template": {"spec": POD}}],
        "fieldOfALaterVersion": True,
    },
}


def test_stored_job_is_read_with_defaults() -> None:
    job = TrainingJob.model_validate(STORED)
    assert (job.metadata.uid, job.metadata.generation) == ("u", 3)
    (role,) = job.spec.roles
    assert (job.spec.queue, role.name, role.processes_per_replica) == ("default", "worker", 1)
    assert job.spec.failure_policy == FailurePolicy(backoff_limit=3, window_seconds=86_400)
    assert job.status is None


def test_a_template_goes_through_the_model_unchanged() -> None:
    job = TrainingJob.model_validate(STORED)
    dumped = job.spec.roles[0].template.spec.model_dump(
        by_alias=True, exclude_none=True, mode="json"
    )
    assert dumped == POD


def test_status_is_rendered_in_camel_case_without_absent_fields() -> None:
    progress = Progress(step=4, percent="42%")
    status = TrainingJobStatus(phase="Running", nodes=2048, progress=progress)
    rendered = status.model_dump(by_alias=True, exclude_none=True, mode="json")
    assert rendered["phase"] == "Running"
    assert rendered["nodes"] == 2048
    assert rendered["progress"] == {"step": 4, "percent": "42%", "phase": "Training"}
    assert "lastTermination" not in rendered


@pytest.mark.parametrize("loss", ["nan", "inf", "", ".5", "0x1", "1" * 33])
def test_loss_that_is_no_decimal_is_refused(loss: str) -> None:
    with pytest.raises(ValidationError, match="loss"):
        Progress(step=1, loss=loss)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_finite_number_is_a_decimal(value: float) -> None:
    loss = bounds.decimal(value)
    assert Progress(step=1, loss=loss).loss == loss
    assert float(str(loss)) == value


def test_a_model_cannot_be_changed_after_it_was_read() -> None:
    job = TrainingJob.model_validate(STORED)
    with pytest.raises(ValidationError, match="frozen"):
        job.spec.roles[0].replicas = 3  # type: ignore[misc]


def test_longest_pod_name_fits_a_host_name() -> None:
    """The longest names with the largest index and attempt have at most 63 characters."""
    job, role = "x" * (names.JOB_AND_ROLE_LENGTH_MAX - 6), "worker"
    assert len(names.pod_name(job, role, NODES_MAX - 1, ATTEMPT_MAX)) == names.POD_NAME_LENGTH_MAX
    assert names.pod_name("train", role, 0, 2) == "train-worker-0-2"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (
            {"topology": {"segments": [{"tier": "nearest", "nodes": 3}]}},
            "the largest of topology.segments has 3 nodes: expected a divisor of the replicas",
        ),
        (
            {
                "workload": {
                    "transformer": {
                        "layers": 2,
                        "hidden": 64,
                        "heads": 4,
                        "feedForward": 256,
                        "vocabulary": 100,
                    },
                    "parallelism": {"data": 3},
                    "training": {"sequence": 16, "globalBatch": 3},
                }
            },
            "workload.parallelism has 3 ranks, but role worker has 2 replicas of 1 ",
        ),
    ],
)
def test_uneven_spec_past_the_schema_is_not_read(spec: dict[str, Any], words: str) -> None:
    """The model repeats the rules of the schema that relate several fields."""
    with pytest.raises(ValidationError, match=words):
        TrainingJob.model_validate(STORED | {"spec": STORED["spec"] | spec})
