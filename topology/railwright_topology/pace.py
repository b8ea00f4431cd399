"""How fast a node was measured to be, beside most others of its kind."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """Rates of a node's slowest device over those of most devices of its kind: of matrix products,
    and of memory; and the share of its kind's rails that lead where they should. 1 is as most are,
    and what nobody has measured."""

    products: float = 1.0
    memory: float = 1.0
    rails: float = 1.0


EVEN = Pace()
