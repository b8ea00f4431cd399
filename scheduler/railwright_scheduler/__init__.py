"""The pure core: what starts, where, with which ranks, and why the rest waits."""

from __future__ import annotations

from railwright_scheduler.model.decisions import Admit, Decisions, Wait
from railwright_scheduler.model.reasons import (
    BindingBacklog,
    BlockedByReservation,
    InternalError,
    LedgerFull,
    NotEvaluated,
    PodNamesTaken,
    PriorityClassNotFound,
    QueueNotFound,
    Reason,
    RuntimeClassNotFound,
    RuntimeClassRefused,
    TierNotFound,
    TooLarge,
    code,
)
from railwright_scheduler.model.shortages import (
    Exclusion,
    ExclusionCause,
    NeverFits,
    NotEnoughNodes,
    Shortage,
)
from railwright_scheduler.model.snapshot import (
    UNKNOWN_DOMAIN,
    Amounts,
    Job,
    Node,
    Role,
    Snapshot,
    Taint,
    Toleration,
    TopologyConstraints,
    Unavailable,
)
from railwright_scheduler.model.text import amount
from railwright_scheduler.policy.decide import decide

__all__ = [
    "UNKNOWN_DOMAIN",
    "Admit",
    "Amounts",
    "BindingBacklog",
    "BlockedByReservation",
    "Decisions",
    "Exclusion",
    "ExclusionCause",
    "InternalError",
    "Job",
    "LedgerFull",
    "NeverFits",
    "Node",
    "NotEnoughNodes",
    "NotEvaluated",
    "PodNamesTaken",
    "PriorityClassNotFound",
    "QueueNotFound",
    "Reason",
    "Role",
    "RuntimeClassNotFound",
    "RuntimeClassRefused",
    "Shortage",
    "Snapshot",
    "Taint",
    "TierNotFound",
    "Toleration",
    "TooLarge",
    "TopologyConstraints",
    "Unavailable",
    "Wait",
    "amount",
    "code",
    "decide",
]
