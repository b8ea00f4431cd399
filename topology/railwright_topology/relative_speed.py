"""How fast a node was measured to be, relative to most others of its kind."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RelativeSpeed:
    """The measured speed of a node's slowest device over that of most devices of its kind: in
    matrix products and in memory copies; and the share of its kind's rails that are cabled as most.
    1.0 is the usual speed, and that of a node without measurements."""

    products: float = 1.0
    memory: float = 1.0
    rails: float = 1.0


EVEN = RelativeSpeed()
