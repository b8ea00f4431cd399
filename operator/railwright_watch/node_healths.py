"""The NodeHealth objects: what decisions use of the hardware and the speed of single nodes."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from railwright_conversion import node_healths
from railwright_kube import projections
from railwright_kube.projections import Metadata
from railwright_topology.miscabling import Rails
from railwright_topology.relative_speed import EVEN, RelativeSpeed

logger = logging.getLogger(__name__)


class HealthObject(Struct, frozen=True):
    """The decoded fields of a NodeHealth."""

    metadata: Metadata
    spec: dict[str, Any] = {}


PROJECTION = projections.of(HealthObject, "NodeHealth")


@dataclass(frozen=True, slots=True)
class HealthRecord:
    """What is known of the node with this UID; empty if the object has lost its owner. ``content``
    is the spec as the object has it."""

    uid: str
    name: str
    rv: int = field(compare=False)
    node_uid: str
    rails: Rails | None = None
    relative_speed: RelativeSpeed = EVEN
    device: str = ""
    content: Mapping[str, Any] = field(default_factory=dict)


def record(found: HealthObject) -> HealthRecord:
    """The record of an object; one that cannot be read says nothing of the node."""
    metadata = found.metadata
    rails, relative_speed = None, EVEN
    try:
        rails = node_healths.parse_rails(found.spec.get("rails"))
        relative_speed = node_healths.parse_speed(found.spec.get("relativeSpeed"), rails)
    except ValueError as error:
        extra = {"node": metadata.name, "error": str(error)}
        logger.warning("health of node not read", extra=extra)
    owners = (each.uid for each in metadata.owner_references if each.kind == "Node")
    return HealthRecord(
        metadata.uid,
        metadata.name,
        int(metadata.resource_version),
        node_uid=next(owners, ""),
        rails=rails,
        relative_speed=relative_speed,
        device=node_healths.parse_device(found.spec.get("device")),
        content=found.spec,
    )


def answered(raw: Mapping[str, Any]) -> HealthRecord:
    """The record from the response to a write. Raises ValueError."""
    return record(projections.converted(raw, HealthObject))


class NodeHealths:
    """The records by the name of the node."""

    def __init__(self) -> None:
        self.by_node: dict[str, HealthRecord] = {}

    def change(self, old: HealthRecord | None, new: HealthRecord | None) -> None:
        """Take in a change; None means absent. An object that is created again may arrive before
        the deletion of the old one."""
        if old is not None:
            held = self.by_node.get(old.name)
            if held is not None and held.uid == old.uid:
                del self.by_node[old.name]
        if new is not None:
            self.by_node[new.name] = new


def is_decisive(old: HealthRecord | None, new: HealthRecord | None) -> bool:
    """Whether a change affects decisions."""
    return _decisive(old) != _decisive(new)


def _decisive(found: HealthRecord | None) -> tuple[Rails | None, RelativeSpeed, str]:
    return (None, EVEN, "") if found is None else (found.rails, found.relative_speed, found.device)
