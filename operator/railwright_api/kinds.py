"""All kinds of Railwright."""

from __future__ import annotations

from railwright_api import fabric, ledger, node_health, placement, profile, queue, training_job
from railwright_api.schema import Definition

DEFINITIONS: tuple[Definition, ...] = tuple(
    module.DEFINITION
    for module in (training_job, queue, fabric, node_health, placement, profile, ledger)
)
