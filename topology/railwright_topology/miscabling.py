"""The rails of one node, and those that do not lead where they should, as values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MiscabledRail:
    """A rail that does not lead where it should, by which adapter, and why in words."""

    rail: int
    adapter: str
    why: str

    @property
    def description(self) -> str:
        """It in words."""
        return f"rail {self.rail} is astray at {self.adapter}: {self.why}"


@dataclass(frozen=True, slots=True)
class Rails:
    """Of a node: the rails of the adapters that those of its kind have, in the adapters' order, and
    what of its own is astray, by rail."""

    order: tuple[int, ...]
    miscabled: tuple[MiscabledRail, ...] = ()

    @property
    def share(self) -> float:
        """Of the adapters those that lead where they should."""
        return max(0.0, 1.0 - len(self.miscabled) / len(self.order))
