"""Profile: the traffic that the ranks of a TrainingJob recorded."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from railwright_api import names
from railwright_api.schema import AGE, Column, Count, Definition, Part, Resource
from railwright_api.workload import PROFILE_LENGTH_MAX, Parallelism


class ProfileSpec(Part):
    """Specification of a Profile."""

    job_uid: Annotated[str, Field(alias="jobUID", min_length=1, max_length=64)]
    """UID of the TrainingJob. The operator ignores the Profile of a deleted job of this name."""
    attempt: Count
    """Attempt whose ranks recorded the profile."""
    parallelism: Parallelism | None = None
    """Parallelism of the job when the profile was recorded, but for data and replicas. The profile
    is not used for a job of another parallelism. Not set for a job without a workload."""
    document: Annotated[str, Field(max_length=PROFILE_LENGTH_MAX)]
    """Traffic that the ranks recorded, as `railwright profile` prints it. The next attempt is
    mapped by it if it fits the parallelism of the job and workload.profile is not set."""


class Profile(Resource):
    """Traffic between the ranks of a TrainingJob in a few steps. It has the name of the job, and is
    deleted with it."""

    kind: Literal["Profile"] = "Profile"
    spec: ProfileSpec
    """Traffic that was recorded, and by which attempt. Written by the operator; read-only."""


DEFINITION = Definition(
    Profile,
    plural=names.PROFILES,
    scope="Namespaced",
    categories=("railwright",),
    columns=(Column("Attempt", ".spec.attempt", "integer"), AGE),
    has_status=False,
)
