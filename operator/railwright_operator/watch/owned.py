"""The Placements of jobs, for the state of a cycle.

Such an object has the name of an attempt of its job. It counts only for the job whose UID it
states: one of a deleted job of this name may still exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Any, Generic, TypeVar

from msgspec import Struct, field

from railwright_operator.watch import projections
from railwright_operator.watch.projections import Metadata


class OwnedSpec(Struct, rename="camel", frozen=True):
    """The decoded fields of the spec of a Placement."""

    job_uid: str = field(name="jobUID", default="")
    topology_hash: str = ""


class OwnedObject(Struct, frozen=True):
    """The decoded fields of a Placement."""

    metadata: Metadata
    spec: OwnedSpec


PLACEMENTS = projections.of(OwnedObject, "Placement")


@dataclass(frozen=True, slots=True)
class OwnedRecord:
    """An object of the job with UID ``job_uid``."""

    uid: str
    namespace: str
    name: str
    rv: int = dataclass_field(compare=False)
    job_uid: str


@dataclass(frozen=True, slots=True)
class PlacementRecord(OwnedRecord):
    """The Placement of one attempt, chosen under the links and node speeds of this hash."""

    topology_hash: str


Owned = TypeVar("Owned", bound=OwnedRecord)


def placement(found: OwnedObject) -> PlacementRecord:
    """The record of a Placement."""
    return PlacementRecord(*_identity(found), found.spec.topology_hash)


def _identity(found: OwnedObject) -> tuple[str, str, str, int, str]:
    metadata = found.metadata
    version = int(metadata.resource_version)
    return metadata.uid, metadata.namespace, metadata.name, version, found.spec.job_uid


class OwnedObjects(Generic[Owned]):
    """The objects of one kind, by namespace and name."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, str], Owned] = {}

    def __repr__(self) -> str:
        return f"<OwnedObjects {len(self._records)}>"

    def change(self, old: Owned | None, new: Owned | None) -> None:
        """Take in a change; None means absent. An object that is created again may arrive before
        the deletion of the old one."""
        if old is not None and self._records.get((old.namespace, old.name)) == old:
            del self._records[old.namespace, old.name]
        if new is not None:
            self._records[new.namespace, new.name] = new

    def of(self, job: Mapping[str, Any], name: str) -> Owned | None:
        """The object of this name that belongs to the job with this metadata."""
        found = self._records.get((job["namespace"], name))
        return found if found is not None and found.job_uid == job["uid"] else None
