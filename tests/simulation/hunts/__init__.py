"""All mutants that the simulation catches."""

from __future__ import annotations

from simulation.hunts import capacity, gangs, operator, pending

HUNTS = (*operator.HUNTS, *gangs.HUNTS, *pending.HUNTS, *capacity.HUNTS)
