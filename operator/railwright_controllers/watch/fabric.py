"""The Fabric: what the site configured, and what the controllers published last."""

from __future__ import annotations

from railwright_api import names, schema
from railwright_api.fabric import Probing
from railwright_watch.cluster_objects import SiteObject


class FabricCache:
    """The Fabric named ``default``; others are ignored."""

    def __init__(self) -> None:
        self.held: SiteObject | None = None

    def __repr__(self) -> str:
        return f"<FabricCache levels={self.levels}>"

    def change(self, old: SiteObject | None, new: SiteObject | None) -> None:
        """Take in a change; None means absent. A Fabric that is created again may arrive before the
        deletion of the old one."""
        if new is not None:
            if new.name == names.SINGLETON:
                self.held = new
        elif old is not None and self.held is not None and old.uid == self.held.uid:
            self.held = None

    @property
    def levels(self) -> tuple[str, ...]:
        """The node labels that the site configured as levels, the coarsest first."""
        return tuple(self.held.spec.get("levels") or ()) if self.held else ()

    @property
    def agents(self) -> int:
        """The number of node agents in its status."""
        status = self.held.status if self.held else {}
        return int((status.get("agents") or {}).get("nodes", 0))

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources in its status."""
        status = self.held.status if self.held else {}
        return tuple(str(each.get("source", "")) for each in status.get("sources") or ())

    @property
    def probing(self) -> Probing:
        """Whether nodes are measured; never without a Fabric."""
        if self.held is None:
            return Probing(mode="Never")
        return schema.read(Probing, self.held.spec.get("probing") or {})
