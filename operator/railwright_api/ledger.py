"""Ledger: the epoch of the leader and every attempt in flight, written by compare-and-swap.

The commit of every gang is one write of this object. It is internal: users read jobs and placements
instead.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from railwright_api import names
from railwright_api.fabric import Span
from railwright_api.interconnect import LEVELS_MAX
from railwright_api.placement import RankMapping
from railwright_api.schema import (
    AGE,
    NODES_MAX,
    RANKS_MAX,
    ROLE_NAME_LENGTH_MAX,
    ROLES_MAX,
    Code,
    Column,
    Count,
    Definition,
    Name,
    Part,
    Resource,
    Sentence,
    Time,
    singleton,
)
from railwright_api.training_job_status import LAST_LINES_LENGTH_MAX, Digest

ENTRIES_MAX = 8192
"""More than fit in what the scheduler gives them: each takes more than 170 bytes."""

PATTERN_LENGTH_MAX = 1_200_000
NodePattern = Annotated[str, Field(max_length=PATTERN_LENGTH_MAX)]
NodeRank = Annotated[int, Field(ge=0, lt=NODES_MAX)]


class EntryCause(Part):
    """Cause for which an attempt is aborted."""

    code: Code
    """Machine-readable cause, such as NodeLost or RankFailed."""
    message: Sentence | None = None
    """Human-readable description of the cause. Not set if the status of the job has it and the
    ledger is nearly full."""
    lost_node_ranks: Annotated[
        tuple[NodeRank, ...], Field(default_factory=tuple, max_length=NODES_MAX)
    ]
    """Node ranks whose nodes are lost."""
    node: Name | None = None
    """Node on which the attempt failed first."""
    time: Time | None = None
    """Time at which the operator detected the cause."""
    rank: Annotated[int, Field(ge=0, lt=RANKS_MAX)] | None = None
    """First rank that failed."""
    exit_code: Annotated[int, Field(ge=-(2**31), le=2**31 - 1)] | None = None
    """Exit code of that rank."""
    signal: Annotated[str, Field(max_length=32)] | None = None
    """Signal that ended that rank."""
    last_lines: Annotated[str, Field(max_length=LAST_LINES_LENGTH_MAX)] | None = None
    """Last lines that the rank wrote to its output."""


class EntryRole(Part):
    """Pods of one role of an attempt."""

    name: Annotated[str, Field(max_length=ROLE_NAME_LENGTH_MAX)]
    """Name of the role."""
    replicas: Annotated[int, Field(ge=1, le=NODES_MAX)]
    """Number of its pods."""
    per_pod: Annotated[dict[str, Count], Field(default_factory=dict, max_length=32)]
    """Resource requests of each pod: cpu in millicores, memory and storage in bytes, other
    resources as counts."""


class Entry(Part):
    """An attempt whose pods are being bound or deleted."""

    job_uid: Annotated[str, Field(alias="jobUID", min_length=1, max_length=64)]
    """UID of the job."""
    namespace: Annotated[str, Field(max_length=63)]
    """Namespace of the job."""
    job_name: Name
    """Name of the job."""
    attempt: Annotated[Count, Field(ge=1)]
    """Number of the attempt."""
    purpose: Literal["Training", "PreRun"] | None = None
    """Purpose of the attempt. PreRun: it only records the traffic of ranks. Default: Training."""
    state: Literal["Committing", "Aborting"]
    """State of the attempt. Committing: pods are created and bound. Aborting: pods are deleted."""
    nodes: Annotated[tuple[NodePattern, ...], Field(max_length=NODES_MAX)]
    """Names of the nodes, one for each pod, in order. a{b,c}d stands for abd and acd."""
    roles: Annotated[tuple[EntryRole, ...], Field(default_factory=tuple, max_length=ROLES_MAX)]
    """Roles of the attempt. The pods are numbered in this order. Empty if all pods were bound
    before the attempt was aborted."""
    spans: Annotated[tuple[Span, ...], Field(default_factory=tuple, max_length=LEVELS_MAX)]
    """Number of domains that the nodes span at each level of the fabric, as planned."""
    mapping: RankMapping | None = None
    """Order of ranks: its traffic and its predicted step time."""
    spec_hash: Annotated[Digest, Field(default_factory=str)]
    """Hash of the fields of the job's spec from which the pods are created."""
    topology_hash: Annotated[Digest, Field(default_factory=str)]
    """Hash of the links and node speeds under which the nodes were chosen."""
    cause: EntryCause | None = None
    """Cause of the abort. Set if the state is Aborting."""


class LedgerSpec(Part):
    """Specification of the Ledger."""

    epoch: Count
    """Epoch of the leader. Each new leader increments it before any other write."""
    incarnation: Annotated[str, Field(max_length=64)]
    """Random identifier of this Ledger. A Ledger that is created again gets another one."""
    holder: Name
    """Identity of the leader."""
    entries: Annotated[tuple[Entry, ...], Field(max_length=ENTRIES_MAX)] = ()
    """Attempts that are being started or aborted."""


class Ledger(Resource):
    """Attempts that the operator is starting or aborting, and its epoch. Internal to the operator:
    do not edit. There is one Ledger, named default."""

    model_config = ConfigDict(json_schema_extra=singleton("Ledger"))

    kind: Literal["Ledger"] = "Ledger"
    spec: LedgerSpec
    """The leading operator, and the attempts that it starts or aborts."""


DEFINITION = Definition(
    Ledger,
    plural=names.LEDGERS,
    scope="Cluster",
    columns=(
        Column("Epoch", ".spec.epoch", "integer"),
        Column("Holder", ".spec.holder"),
        AGE,
    ),
    has_status=False,
)
