"""The Placements and Profiles of jobs, for the state of a cycle.

Such an object has the name of its job, or of an attempt of it. It counts only for the job whose UID
it states: one of a deleted job of this name may still exist.
"""

from __future__ import annotations

import logging
import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Any, Generic, TypeVar

from msgspec import Struct, field

from railwright_kube import projections
from railwright_kube.projections import Metadata

logger = logging.getLogger(__name__)

NODES_SIZE_MAX = 1_000_000
"""An aborting entry repeats them, and must fit in the ledger."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
"""Names of nodes that the API server accepts. The schema of a Placement accepts others, which would
be another path, or have another meaning in the ledger."""


class PlacementPrediction(Struct, rename="camel", frozen=True):
    """The decoded fields of the predicted step of a Placement."""

    step_seconds: str = ""
    exposed_communication_seconds: str = ""


class PlacementMapping(Struct, frozen=True):
    """The decoded fields of the mapping of a Placement."""

    predicted: PlacementPrediction | None = None


class OwnedSpec(Struct, rename="camel", frozen=True):
    """The decoded fields of the spec of a Placement or a Profile."""

    job_uid: str = field(name="jobUID", default="")
    attempt: int = 0
    nodes: tuple[str, ...] = ()
    topology_hash: str = ""
    mapping: PlacementMapping | None = None
    parallelism: dict[str, Any] | None = None
    document: str = ""


class OwnedObject(Struct, frozen=True):
    """The decoded fields of a Placement or a Profile."""

    metadata: Metadata
    spec: OwnedSpec


PLACEMENTS = projections.of(OwnedObject, "Placement")
PROFILES = projections.of(OwnedObject, "Profile")


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
    """The Placement of one attempt: the node of each pod, chosen under the links and node speeds of
    this hash. ``nodes`` is empty if it has what is no name of a node. ``predicted_step_s``, and how
    much of it is exposed communication, are None if they were not predicted."""

    nodes: tuple[str, ...]
    topology_hash: str
    predicted_step_s: float | None = None
    predicted_exposed_s: float | None = None


@dataclass(frozen=True, slots=True)
class ProfileRecord(OwnedRecord):
    """The Profile of a job: the ``document`` that the ranks of this attempt recorded, and the
    ``parallelism`` that the job stated then."""

    attempt: int
    document: str
    parallelism: dict[str, Any] | None = None


Owned = TypeVar("Owned", bound=OwnedRecord)


def placement(found: OwnedObject) -> PlacementRecord:
    """The record of a Placement."""
    names, size = found.spec.nodes, sum(map(len, found.spec.nodes))
    if size > NODES_SIZE_MAX or not all(map(_NAME.fullmatch, names)):
        metadata = found.metadata
        extra = {"namespace": metadata.namespace, "placement": metadata.name, "bytes": size}
        logger.warning("nodes of placement not readable", extra=extra)
        names = ()
    mapping = found.spec.mapping
    predicted = (mapping and mapping.predicted) or PlacementPrediction()
    return PlacementRecord(
        *_identity(found),
        tuple(map(sys.intern, names)),
        found.spec.topology_hash,
        _seconds(predicted.step_seconds),
        _seconds(predicted.exposed_communication_seconds),
    )


def _seconds(text: str) -> float | None:
    """A predicted time; None for what is no finite number of seconds."""
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) else None


def profile(found: OwnedObject) -> ProfileRecord:
    """The record of a Profile."""
    spec = found.spec
    return ProfileRecord(*_identity(found), spec.attempt, spec.document, spec.parallelism)


def answered(raw: Mapping[str, Any]) -> OwnedObject:
    """The object from the response to a request. Raises ValueError if it is invalid."""
    return projections.converted(raw, OwnedObject)


def _identity(found: OwnedObject) -> tuple[str, str, str, int, str]:
    metadata = found.metadata
    version = int(metadata.resource_version)
    return metadata.uid, metadata.namespace, metadata.name, version, found.spec.job_uid


class OwnedObjects(Generic[Owned]):
    """The objects of one kind, by namespace and name."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, str], Owned] = {}

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
