"""The example of a policy that requires images by digest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from integration import manifests
from railwright_api import names
from railwright_testbed import ControlPlane, waiting
from railwright_testbed.api_client import ApiClient, ApiError

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/images.yaml"
PINNED = f"python@sha256:{'0' * 64}"


def _answer(admin: ApiClient, namespace: str, job: dict[str, Any]) -> str:
    """How the job is refused; empty if it is not."""
    path = manifests.path(names.TRAINING_JOBS, namespace)
    try:
        admin.post(path + manifests.ASK, job)
    except ApiError as error:
        return str(error)
    return ""


@pytest.fixture
def pinned(control_plane: ControlPlane, admin: ApiClient, namespace: str) -> str:
    """A namespace in which the policy is in force."""
    control_plane.kubectl("apply", "-f", str(EXAMPLE))
    control_plane.kubectl("label", "namespace", namespace, f"{names.GROUP}/images=pinned")
    waiting.until(
        lambda: "has no digest" in _answer(admin, namespace, manifests.job()),
        "the policy in force",
        deadline_s=30,
    )
    return namespace


def _volume(reference: str) -> dict[str, Any]:
    return {"volumes": [{"name": "data", "image": {"reference": reference}}]}


def test_image_without_digest_is_refused(admin: ApiClient, pinned: str) -> None:
    """In any container, and in a volume."""
    by_digest = {"image": PINNED}
    assert _answer(admin, pinned, manifests.job(container=by_digest, pod=_volume(PINNED))) == ""
    for image in ("python", "python:3.12", "python:latest", "python@sha256:0", f"{PINNED} "):
        before = {"name": "before", "image": image}
        for job in (
            manifests.job(container={"image": image}),
            manifests.job(container=by_digest, pod={"initContainers": [before]}),
            manifests.job(container=by_digest, pod=_volume(image)),
        ):
            answer = _answer(admin, pinned, job).replace("\\", "")
            assert f'the image "{image}" has no digest, which this namespace requires' in answer


def test_change_of_job_from_before_policy_is_accepted(
    control_plane: ControlPlane, admin: ApiClient, pinned: str
) -> None:
    """But not of its template. The policy does not apply in namespaces without the label."""
    label = f"{names.GROUP}/images"
    control_plane.kubectl("label", "namespace", pinned, f"{label}-")
    waiting.until(lambda: _answer(admin, pinned, manifests.job()) == "", "no policy", deadline_s=30)
    jobs = manifests.path(names.TRAINING_JOBS, pinned)
    admin.post(jobs, manifests.job("old", spec={"suspend": True}))
    control_plane.kubectl("label", "namespace", pinned, f"{label}=pinned")
    waiting.until(
        lambda: "has no digest" in _answer(admin, pinned, manifests.job()), "it", deadline_s=30
    )
    admin.patch(f"{jobs}/old", {"spec": {"failurePolicy": {"backoffLimit": 7}}})
    with pytest.raises(ApiError, match="has no digest"):
        admin.patch(f"{jobs}/old", {"spec": manifests.roles({"nodeSelector": {"a": "b"}})})
