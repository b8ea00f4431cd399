"""Nodes as the watch brings them, with the last amounts that could be read.

What a device plugin says passes through the kubelet unjudged. An amount that is none, for a moment
or for good, must neither stop the watch nor make a node's devices come and go.
"""

from __future__ import annotations

from dataclasses import replace

from railwright_operator.watch import records
from railwright_operator.watch.excerpts import Node
from railwright_operator.watch.records import NodeRecord
from railwright_scheduler.model.snapshot import Amounts


class Nodes:
    """Reads nodes; remembers the amounts of each for as long as it exists."""

    def __init__(self) -> None:
        self._good: dict[str, Amounts] = {}

    def __repr__(self) -> str:
        return f"<Nodes {len(self._good)}>"

    def read(self, found: Node) -> NodeRecord:
        """The record of a Node; what cannot be read of it is as it last was, or 0."""
        record = records.node(found)
        if record.unread:
            held = self._good.get(record.uid, {})
            kept = {resource: held.get(resource, 0) for resource in record.unread}
            record = replace(record, allocatable={**record.allocatable, **kept})
        self._good[record.uid] = record.allocatable
        return record

    def changed(self, old: NodeRecord | None, new: NodeRecord | None) -> None:
        """A node changed; one that is gone is forgotten."""
        if new is None and old is not None:
            self._good.pop(old.uid, None)
