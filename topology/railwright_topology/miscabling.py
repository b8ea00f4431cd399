"""The rails of one node, and those that are miscabled, as values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MiscabledRail:
    """A rail cabled to another switch than on most nodes of its kind, with adapter and reason."""

    rail: int
    adapter: str
    why: str

    @property
    def description(self) -> str:
        """The miscabled rail as a sentence."""
        return f"rail {self.rail} is miscabled at {self.adapter}: {self.why}"


@dataclass(frozen=True, slots=True)
class Rails:
    """Of a node: the rails of the adapters of its kind, in the adapters' order, and its miscabled
    rails."""

    order: tuple[int, ...]
    miscabled: tuple[MiscabledRail, ...] = ()

    @property
    def share(self) -> float:
        """The share of correctly cabled adapters."""
        return max(0.0, 1.0 - len(self.miscabled) / len(self.order))
