"""The pure core: what starts, where, with which ranks, and why the rest waits."""

from __future__ import annotations

from railwright_scheduler.decide import decide
from railwright_scheduler.decisions import (
    Admit,
    Behind,
    Decisions,
    Exclusion,
    ExclusionCause,
    GangsAhead,
    NeverFits,
    NotEnoughNodes,
    PreRunAhead,
    PriorityClassMissing,
    QueueMissing,
    Reason,
    Shortage,
    TierMissing,
    Wait,
)
from railwright_scheduler.explain import Code, amount, code, sentence
from railwright_scheduler.snapshot import (
    UNKNOWN_DOMAIN,
    Amounts,
    Job,
    Node,
    Snapshot,
    Taint,
    Terms,
    Toleration,
    Unavailable,
)

__all__ = [
    "UNKNOWN_DOMAIN",
    "Admit",
    "Amounts",
    "Behind",
    "Code",
    "Decisions",
    "Exclusion",
    "ExclusionCause",
    "GangsAhead",
    "Job",
    "NeverFits",
    "Node",
    "NotEnoughNodes",
    "PreRunAhead",
    "PriorityClassMissing",
    "QueueMissing",
    "Reason",
    "Shortage",
    "Snapshot",
    "Taint",
    "Terms",
    "TierMissing",
    "Toleration",
    "Unavailable",
    "Wait",
    "amount",
    "code",
    "decide",
    "sentence",
]
