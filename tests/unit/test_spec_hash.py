"""Hashes of two versions are compared only if both hash the same fields."""

from __future__ import annotations

from types import GenericAlias
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, create_model

from railwright_api.role import Role
from railwright_api.schema import NODES_MAX
from railwright_api.topology import Topology
from railwright_api.training_job import TrainingJobSpec
from railwright_api.workload import Workload
from railwright_operator.watch import spec_hash


def later(model: type[BaseModel], **fields: Any) -> Any:
    """The model as a later version may have it."""
    return create_model("Later", __base__=model, **fields)


def later_spec(**role: Any) -> type[BaseModel]:
    roles = GenericAlias(tuple, (later(Role, **role), ...))
    spec: type[BaseModel] = later(TrainingJobSpec, roles=(roles, ...))
    return spec


RAILS = Literal["Aligned", "Preferred"]


@pytest.mark.parametrize(
    "spec",
    [
        later_spec(spares=(int, 0)),
        later_spec(processes_per_replica=(int, 8)),
        later_spec(replicas=(str, ...)),
        later_spec(topology=(later(Topology, rails=(RAILS | None, None)) | None, None)),
        later(TrainingJobSpec, workload=(later(Workload, diffusion=(bool, False)) | None, None)),
    ],
    ids=["field", "default", "type", "value", "of a pre-run"],
)
def test_what_a_user_may_write_is_in_the_version(spec: type[BaseModel]) -> None:
    """A version that does not know it leaves it out, and its hash of the same job is another."""
    assert spec_hash.version(spec) != spec_hash.VERSION


@pytest.mark.parametrize(
    "spec",
    [
        later_spec(),
        later_spec(replicas=(Annotated[int, Field(ge=0, le=2 * NODES_MAX)], ...)),
        later_spec(group=(str | None, Field(None, description="A group", title="Group"))),
        later_spec(template=(dict[str, str], ...)),
        later(TrainingJobSpec, since_later=(int, 7)),
    ],
    ids=["model", "bound", "words", "template", "not hashed"],
)
def test_what_changes_no_hash_changes_no_version(spec: type[BaseModel]) -> None:
    assert spec_hash.version(spec) == spec_hash.VERSION


def test_version_ends_before_the_dash() -> None:
    """Up to there hashes are compared."""
    number, _, digest = spec_hash.VERSION.partition(".")
    assert number == str(spec_hash.NUMBER)
    assert len(digest) == 6
    assert "-" not in spec_hash.VERSION
