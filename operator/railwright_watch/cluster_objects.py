"""Cluster-scoped objects of the site's administrators: Queues, the Fabric, classes of pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr

from railwright_kube import projections
from railwright_kube.projections import Identity


class ClusterObject(Struct, frozen=True):
    """A Queue or a Fabric with ``spec`` and ``status``, a PriorityClass with its ``value``, whether
    or not it is the default of the cluster, or a RuntimeClass with its ``overhead`` and
    ``scheduling``. Later versions may have other fields; null is an empty mapping. Any new version
    is a change: writes of the status name the version."""

    metadata: Identity
    spec: Any = None
    status: Any = None
    value: int = 0
    is_default: bool = msgspec.field(name="globalDefault", default=False)
    overhead: Any = None
    scheduling: Any = None

    def __post_init__(self) -> None:
        for name in ("spec", "status", "overhead", "scheduling"):
            force_setattr(self, name, getattr(self, name) or {})

    @property
    def uid(self) -> str:
        """The UID of this object."""
        return self.metadata.uid

    @property
    def name(self) -> str:
        """Its name."""
        return self.metadata.name

    @property
    def rv(self) -> int:
        """Its version."""
        return int(self.metadata.resource_version)


FABRICS = projections.of(ClusterObject, "Fabric")


def answered(raw: Mapping[str, Any]) -> ClusterObject:
    """The object from the response to a write. Raises ValueError for another kind."""
    return projections.converted(raw, ClusterObject)
