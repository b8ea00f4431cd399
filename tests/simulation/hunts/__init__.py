"""All mutants that the simulation catches."""

from __future__ import annotations

from simulation.hunts import (
    capacity,
    checkpoints,
    controllers,
    deadlines,
    gangs,
    hangs,
    kubernetes,
    operator,
    orphans,
    pending,
    pre_runs,
)

HUNTS = (
    *operator.HUNTS,
    *gangs.HUNTS,
    *deadlines.HUNTS,
    *hangs.HUNTS,
    *checkpoints.HUNTS,
    *pre_runs.HUNTS,
    *orphans.HUNTS,
    *pending.HUNTS,
    *capacity.HUNTS,
    *kubernetes.HUNTS,
    *controllers.HUNTS,
)
