"""Everything a decision may depend on, as one frozen value.

The operator makes it from what it watches, the simulator from its world, a test from a table; the
scheduler reads nothing else. Amounts are exact integers in base units: CPU in millicores, memory in
bytes, every other resource (devices, pods) in pieces.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

Amounts = Mapping[str, int]

UNKNOWN_DOMAIN = ""


class Unavailable(StrEnum):
    """Why a node takes no new pods, whatever the job."""

    UNREADY = "unready"
    CORDONED = "cordoned"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Taint:
    """A node's taint; only NoSchedule and NoExecute keep pods away here."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Toleration:
    """A pod's toleration, with Kubernetes' meaning: an empty key with Exists tolerates all."""

    key: str
    operator: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Node:
    """One machine: where it stands, what it has, and what is taken.

    ``domains`` runs from the coarsest level of the snapshot to the finest, as long as its
    ``levels``; UNKNOWN_DOMAIN where the node carries no label. ``used`` counts live pods and the
    pods that committed plans still owe it.
    """

    name: str
    domains: tuple[str, ...]
    allocatable: Amounts
    used: Amounts
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unavailable: Unavailable | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A job that wants to start: ``num_nodes`` pods of ``per_node`` each, on distinct nodes.

    ``submitted_s`` orders jobs of equal priority (seconds, any epoch; the older first; then uid).
    ``attempt`` is the number the attempt would get. ``queue`` need not exist.
    """

    uid: str
    namespace: str
    name: str
    queue: str
    priority: int
    submitted_s: int
    attempt: int
    num_nodes: int
    per_node: Amounts
    selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The world as one value; ``levels`` names the domains, the coarsest first: block, rack."""

    levels: tuple[str, ...]
    nodes: tuple[Node, ...]
    queues: tuple[str, ...]
    jobs: tuple[Job, ...]
