"""Manifests of our kinds for tests: a valid one with the changes of a test."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from railwright_api import names
from railwright_testbed.api_client import ApiClient, ApiError

Manifest = dict[str, Any]

ASK = "?dryRun=All&fieldValidation=Strict"

PARALLEL: Manifest = {
    "transformer": {"layers": 2, "hidden": 64, "heads": 4, "feedForward": 256, "vocabulary": 128},
    "parallelism": {"data": 4},
    "training": {"sequence": 64, "globalBatch": 16},
}
"""A workload of four replicas, two of which represent all."""


def job(
    name: str = "train",
    *,
    spec: Manifest | None = None,
    role: Manifest | None = None,
    metadata: Manifest | None = None,
    pod: Manifest | None = None,
    container: Manifest | None = None,
) -> Manifest:
    """A TrainingJob of one role with two replicas; each argument adds to, or replaces, fields of
    its part."""
    main = {"name": "train", "image": "python:3.12", "command": ["python3", "train.py"]}
    template: Manifest = {
        "spec": {"containers": [without_nones(main | (container or {}))]} | (pod or {})
    }
    if metadata is not None:
        template["metadata"] = metadata
    return {
        "apiVersion": names.API_VERSION,
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": without_nones(
            {
                "roles": [
                    without_nones(
                        {"name": "worker", "replicas": 2, "template": template} | (role or {})
                    )
                ]
            }
            | (spec or {})
        ),
    }


def roles(pod: Manifest | None = None, **changes: Any) -> Manifest:
    """The roles of that job, with these changes, as part of a spec."""
    return {"roles": job(role=changes, pod=pod)["spec"]["roles"]}


def cluster_object(kind: str, name: str = "default", **spec: object) -> Manifest:
    """An object of a kind without namespace."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


@contextmanager
def created(admin: ApiClient, *objects: tuple[str, Manifest]) -> Iterator[None]:
    """These objects exist in the block, each under the path of its kind."""
    with ExitStack() as made:
        for its, body in objects:
            admin.post(its, body)
            made.callback(admin.delete, f"{its}/{body['metadata']['name']}")
        yield


def path(kind: str, namespace: str | None = None) -> str:
    """Where objects of a kind, given by its plural, are on the API server."""
    within = "" if namespace is None else f"/namespaces/{namespace}"
    return f"/apis/{names.API_VERSION}{within}/{kind}"


def accept(client: ApiClient, manifest: Manifest) -> Manifest:
    """The TrainingJob as the API server would store it."""
    return client.post(path(names.TRAINING_JOBS, "default") + ASK, manifest)


def refusal(client: ApiClient, manifest: Manifest) -> str:
    """The words in which the API server refuses the TrainingJob as invalid."""
    with pytest.raises(ApiError) as caught:
        accept(client, manifest)
    assert caught.value.status == 422, caught.value
    answer = str(caught.value)
    return str(json.loads(answer[answer.index("{") :])["message"])


def text(manifest: Manifest) -> str:
    """The manifest as kubectl reads it from its standard input."""
    return json.dumps(manifest)


def without_nones(fields: Manifest) -> Manifest:
    """The fields that have a value: None in a test means that the field is left out."""
    return {name: value for name, value in fields.items() if value is not None}
