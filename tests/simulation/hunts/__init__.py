"""All mutants that the simulation catches."""

from __future__ import annotations

from simulation.hunts import gangs, operator, pre_runs

HUNTS = (*operator.HUNTS, *gangs.HUNTS, *pre_runs.HUNTS)
