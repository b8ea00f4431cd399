"""All mutants that the simulation catches."""

from __future__ import annotations

from simulation.hunts import gangs, operator, orphans, rest

HUNTS = (*operator.HUNTS, *gangs.HUNTS, *orphans.HUNTS, *rest.HUNTS)
