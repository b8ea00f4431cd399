"""Publish what discovery found of single nodes, in a NodeHealth for each, when it changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from random import Random
from typing import Any

from railwright_api import names, routes
from railwright_api.node_health import RAILS_MAX, SENTENCES_MAX, SOURCES_MAX, NodeHealthSpec
from railwright_api.schema import field_names
from railwright_controllers.discovery import AGENTS, Discovery, FabricState
from railwright_conversion import bounds, machines, node_healths
from railwright_kube import bodies
from railwright_kube.backoff import Backoff
from railwright_kube.client import Api
from railwright_kube.object_writes import ObjectWrites
from railwright_kube.reflector import Reflector
from railwright_topology import outline, slow_devices
from railwright_topology.fabric import Fabric
from railwright_topology.grouping import group
from railwright_topology.miscabling import MiscabledRail, Rails
from railwright_topology.relative_speed import EVEN
from railwright_watch import node_healths as records
from railwright_watch.node_healths import HealthRecord
from railwright_watch.nodes import NodeRecord

logger = logging.getLogger(__name__)

AT_ONCE = 4
"""Writes at a time: half of those of cluster-scoped objects, as the ledger's are among these."""

FIELDS = field_names(NodeHealthSpec)

INTERVAL_S = Backoff(5.0, 300.0)
"""Between two reports, after reports that failed in a row, and after failed writes of a node."""

Json = dict[str, Any]


@dataclass(eq=False)
class NodeHealthReporter:
    """Writes NodeHealth objects, in a task of its own. Objects of deleted nodes are left to the
    garbage collection."""

    api: Api
    _: KW_ONLY
    healths: Reflector[HealthRecord]
    discovery: Discovery
    nodes: Mapping[str, NodeRecord]
    clock: Callable[[], float]
    rng: Random

    def __post_init__(self) -> None:
        self._writes: ObjectWrites[str] = ObjectWrites(
            names.NODE_HEALTHS, backoff=INTERVAL_S, clock=self.clock, rng=self.rng
        )
        self._fabric: Fabric | None = None
        self._contents: Mapping[str, Json] = {}
        self._measured: set[str] = set()

    def __repr__(self) -> str:
        return f"<NodeHealthReporter {len(self._contents)} nodes>"

    async def run(self) -> None:
        """Report until cancelled."""
        failures = 0
        while True:
            await asyncio.sleep(INTERVAL_S.delay_s(failures, self.rng))
            try:
                failures = 0 if await self.report() else failures + 1
            except Exception as error:
                extra = {"kind": names.NODE_HEALTHS, "error": str(error)}
                logger.exception("status rendering failed", extra=extra)

    async def report(self) -> bool:
        """Write the objects that differ from what was found. If all writes of a round fail for a
        reason that is not of one object, the report ends, and False is returned. What was found
        before a restart stays until agents have reported, as a device is slow by comparison with
        those of other nodes, and until all files are valid."""
        if not self.discovery.is_caught_up or self.discovery.unread_files():
            return True
        found = self.discovery.found
        if found.fabric is not self._fabric:
            self._contents = await asyncio.to_thread(contents, found.fabric)
            self._fabric = found.fabric
            self._measured = (self._measured | found.fabric.benchmarks.keys()) & (
                found.fabric.places.keys()
            )
        held = {each.name: each for each in self.healths.records.values()}
        nodes = {node.name: node for node in self.nodes.values()}
        self._writes.forget_unless(nodes.__contains__)
        due = [
            (node, held.get(name), content)
            for name, node in nodes.items()
            if self._writes.is_due(name)
            and (content := self._changed(node, held.get(name), found)) is not None
        ]
        for first in range(0, len(due), AT_ONCE):
            writes = (
                self._writes.write(node.name, partial(self._write, node, stored, content))
                for node, stored, content in due[first : first + AT_ONCE]
            )
            if not any(await asyncio.gather(*writes)):
                return False
        return True

    def _changed(
        self, node: NodeRecord, held: HealthRecord | None, found: FabricState
    ) -> Json | None:
        """What is to be written for a node; None if that is nothing."""
        content = self._contents.get(node.name, {})
        if found.node_uids.get(node.name) != node.uid:
            return None  # What was found is of an earlier node of this name.
        if held is None:
            return content or None
        if held.node_uid not in ("", node.uid):
            return None  # So is the object, which is being deleted.
        if AGENTS in held.content.get("sources", ()):
            if node.name not in found.reported:
                return None  # The agent is silent: its last report stays.
            if node.name not in self._measured:
                # An agent that restarted cannot measure a busy node before its training ends.
                content = _benchmark_fields(held.content) | content
        return None if _own_fields(held, content) == content and held.node_uid else content

    async def _write(self, node: NodeRecord, held: HealthRecord | None, content: Json) -> None:
        if held is None:
            metadata = {"name": node.name, "ownerReferences": [_owner(node)]}
            body = bodies.manifest(names.API_VERSION, "NodeHealth", metadata, content)
            answer = await self.api.create(routes.kind(names.NODE_HEALTHS), body)
        else:
            metadata = {"resourceVersion": str(held.rv), "ownerReferences": [_owner(node)]}
            changed = bodies.merge_patch(_own_fields(held, content), content)
            body = {"metadata": metadata, "spec": changed}
            answer = await self.api.patch(routes.one(names.NODE_HEALTHS, node.name), body)
        self.healths.absorb(records.answered(answer))


def contents(fabric: Fabric) -> dict[str, Json]:
    """The fields of each node of which anything is known, bounded so that the schema accepts any
    content."""
    slow = group((each.node, slow_devices.describe(each)) for each in fabric.slow)
    hardware = {
        node: bounds.sentence(text)
        for text, nodes in outline.kinds(fabric.inventories)
        for node in nodes
    }
    found = {*hardware, *fabric.rails, *fabric.relative_speeds, *fabric.benchmarks}
    return {
        node: _content(fabric, node, hardware.get(node), slow.get(node, ()))
        for node in sorted(found & fabric.places.keys())
    }


def _content(fabric: Fabric, node: str, hardware: str | None, slow: Iterable[str]) -> Json:
    inventory, rails = fabric.inventories.get(node), fabric.rails.get(node)
    accelerators = inventory.accelerators if inventory else ()
    fields = {
        "hardware": hardware,
        "device": machines.product(part.model for part in accelerators),
        "unknown": _sentences(inventory.unknown if inventory else ()),
        "rails": node_healths.render_rails(_bounded(rails)) if rails else None,
        "relativeSpeed": node_healths.render_speed(fabric.relative_speeds.get(node, EVEN)),
        "slow": _sentences(slow),
        "sources": [bounds.name(each) for each in fabric.fact_sources.get(node, ())][:SOURCES_MAX],
    }
    return {name: value for name, value in fields.items() if value}


def _sentences(texts: Iterable[str]) -> list[str]:
    return [bounds.sentence(text) for text in texts][:SENTENCES_MAX]


def _bounded(rails: Rails) -> Rails:
    miscabled = (
        MiscabledRail(each.rail, bounds.sentence(each.adapter), bounds.sentence(each.why))
        for each in rails.miscabled[:RAILS_MAX]
    )
    return Rails(rails.order[:RAILS_MAX], tuple(miscabled))


def _own_fields(held: HealthRecord, content: Json) -> Json:
    """What the object has of the fields that this version writes: those of a later one stay."""
    return {
        name: _without_later(value, content.get(name))
        for name, value in held.content.items()
        if name in FIELDS
    }


def _without_later(held: Any, content: Any) -> Any:
    """A value without the fields of a later version: below the top, this one writes all it has."""
    if isinstance(held, dict) and isinstance(content, dict):
        return {name: _without_later(held[name], content[name]) for name in held if name in content}
    if isinstance(held, list) and isinstance(content, list) and len(held) == len(content):
        return [_without_later(*each) for each in zip(held, content, strict=True)]
    return held


def _benchmark_fields(content: Mapping[str, Any]) -> Json:
    """What follows from benchmarks alone."""
    return {name: content[name] for name in ("relativeSpeed", "slow") if name in content}


def _owner(node: NodeRecord) -> Json:
    return {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid}
