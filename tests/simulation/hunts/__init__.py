"""All mutants that the simulation catches."""

from __future__ import annotations

from simulation.hunts import checkpoints, deadlines, gangs, hangs, operator, pre_runs

HUNTS = (
    *operator.HUNTS,
    *gangs.HUNTS,
    *deadlines.HUNTS,
    *hangs.HUNTS,
    *checkpoints.HUNTS,
    *pre_runs.HUNTS,
)
