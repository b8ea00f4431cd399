"""All mutants that the simulation catches."""

from __future__ import annotations

from simulation.hunts import gangs, operator

HUNTS = (*operator.HUNTS, *gangs.HUNTS)
