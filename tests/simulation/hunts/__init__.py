"""All mutants that the simulation catches."""

from __future__ import annotations

from simulation.hunts import checkpoints, deadlines, gangs, hangs, operator

HUNTS = (*operator.HUNTS, *gangs.HUNTS, *deadlines.HUNTS, *hangs.HUNTS, *checkpoints.HUNTS)
