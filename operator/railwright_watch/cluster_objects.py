"""Cluster-scoped objects of the site's administrators: Queues, the Fabric, classes of pods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Struct

from railwright_kube import projections
from railwright_kube.projections import Identity


class ClusterObject(Struct, frozen=True):
    """The decoded fields of a Queue, a Fabric, a PriorityClass (``value``, ``global_default``) or a
    RuntimeClass (``overhead``, ``scheduling``). Later versions may have other fields."""

    metadata: Identity
    spec: Any = None
    status: Any = None
    value: int = 0
    global_default: bool = msgspec.field(name="globalDefault", default=False)
    overhead: Any = None
    scheduling: Any = None


FABRICS = projections.of(ClusterObject, "Fabric")


@dataclass(frozen=True, slots=True)
class SiteObject:
    """A Queue or a Fabric with ``spec`` and ``status``, a PriorityClass with its ``value``, whether
    or not it is the default of the cluster, or a RuntimeClass with its ``overhead`` and
    ``scheduling``. Any new version is a change: writes of the status name the version."""

    uid: str
    name: str
    rv: int
    spec: Mapping[str, Any] = field(default_factory=dict)
    status: Mapping[str, Any] = field(default_factory=dict)
    value: int = 0
    is_default: bool = False
    overhead: Mapping[str, Any] = field(default_factory=dict)
    scheduling: Mapping[str, Any] = field(default_factory=dict)


def site_object(found: ClusterObject) -> SiteObject:
    """The record of an object."""
    metadata = found.metadata
    return SiteObject(
        metadata.uid,
        metadata.name,
        int(metadata.resource_version),
        spec=found.spec or {},
        status=found.status or {},
        value=found.value,
        is_default=found.global_default,
        overhead=found.overhead or {},
        scheduling=found.scheduling or {},
    )


def answered(raw: Mapping[str, Any]) -> SiteObject:
    """The record of a Queue or a Fabric from the response to a write. Raises ValueError."""
    return site_object(projections.converted(raw, ClusterObject))
