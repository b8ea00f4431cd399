"""The Fabric: what the site configured, and what the controllers published last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from railwright_api import names, schema
from railwright_api.fabric import Probing
from railwright_watch.cluster_objects import ClusterObject


class FabricCache:
    """The Fabric named ``default``; others are ignored. ``spec`` and ``published`` are its spec and
    its status. Both stay if it is deleted: the new one gets them."""

    def __init__(self) -> None:
        self.held: ClusterObject | None = None
        self.spec: Mapping[str, Any] = {}
        self.published: Mapping[str, Any] = {}

    def change(self, old: ClusterObject | None, new: ClusterObject | None) -> None:
        """Take in a change; None means absent. A Fabric that is created again may arrive before the
        deletion of the old one."""
        if new is not None:
            if new.name == names.SINGLETON:
                self.held, self.spec = new, new.spec
                self.published = new.status or self.published
        elif old is not None and self.held is not None and old.uid == self.held.uid:
            self.held = None

    @property
    def levels(self) -> tuple[str, ...]:
        """The node labels that the site configured as levels, the coarsest first."""
        return tuple(self.spec.get("levels") or ())

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources in its status."""
        return tuple(str(each.get("source", "")) for each in self.published.get("sources") or ())

    @property
    def probing(self) -> Probing:
        """Whether nodes are measured; never without a Fabric."""
        if self.held is None:
            return Probing(mode="Never")
        return schema.read(Probing, self.spec.get("probing") or {})
