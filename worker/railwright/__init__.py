"""What a training script imports: how far it is, and checkpoints that survive any failure.

All of it works without Railwright too: reports then go nowhere, and checkpoints are those of a
local run. Nothing here needs torch but the Checkpointer, once it is used.
"""

from __future__ import annotations

from railwright.checkpoint import AttemptRevoked, Checkpointer
from railwright.progress import phase, report
from railwright.protocol import Phase

__all__ = ["AttemptRevoked", "Checkpointer", "Phase", "phase", "report"]
