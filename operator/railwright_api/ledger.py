"""Ledger: the one object that every commit of a gang goes through, written by compare-and-swap.

It holds the leader's epoch and every attempt in flight. It is internal: people read jobs and
placements instead.
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
    """Why an attempt is being aborted."""

    code: Code
    """What ended it, as one word."""
    message: Sentence | None = None
    """What ended it, as a sentence. None if the job's status has it and the ledger is short of
    room."""
    lost_node_ranks: Annotated[
        tuple[NodeRank, ...], Field(default_factory=tuple, max_length=NODES_MAX)
    ]
    """Node ranks whose nodes were found lost."""
    node: Name | None = None
    """Node it happened on."""
    time: Time | None = None
    """When it was noticed."""
    rank: Annotated[int, Field(ge=0, lt=RANKS_MAX)] | None = None
    """First rank that failed."""
    exit_code: Annotated[int, Field(ge=-(2**31), le=2**31 - 1)] | None = None
    """Exit code of that rank."""
    signal: Annotated[str, Field(max_length=32)] | None = None
    """Signal that ended that rank."""
    last_lines: Annotated[str, Field(max_length=LAST_LINES_LENGTH_MAX)] | None = None
    """Last lines that rank wrote."""


class EntryRole(Part):
    """Pods of one role of an attempt."""

    name: Annotated[str, Field(max_length=ROLE_NAME_LENGTH_MAX)]
    """Name of the role."""
    replicas: Annotated[int, Field(ge=1, le=NODES_MAX)]
    """Number of its pods."""
    per_pod: Annotated[dict[str, Count], Field(default_factory=dict, max_length=32)]
    """What each pod requests: cpu in millicores, memory and storage in bytes, all else in
    pieces."""


class Entry(Part):
    """One attempt in flight."""

    job_uid: Annotated[str, Field(alias="jobUID", min_length=1, max_length=64)]
    """UID of the job."""
    namespace: Annotated[str, Field(max_length=63)]
    """Namespace of the job."""
    job_name: Name
    """Name of the job."""
    attempt: Annotated[Count, Field(ge=1)]
    """Number of the attempt."""
    purpose: Literal["Training", "PreRun"] | None = None
    """PreRun: the attempt only records what ranks send. None means Training."""
    state: Literal["Committing", "Aborting"]
    """Committing until all pods are bound; Aborting until all pods are gone."""
    nodes: Annotated[tuple[NodePattern, ...], Field(max_length=NODES_MAX)]
    """Node of each pod, in order. a{b,c}d stands for abd and acd."""
    roles: Annotated[tuple[EntryRole, ...], Field(default_factory=tuple, max_length=ROLES_MAX)]
    """Roles of the attempt, whose pods are numbered through in this order. None for an attempt
    whose pods were all bound before it was aborted."""
    spans: Annotated[tuple[Span, ...], Field(default_factory=tuple, max_length=LEVELS_MAX)]
    """How far the nodes spread at each level of the fabric when they were chosen."""
    mapping: RankMapping | None = None
    """What the order of ranks is good for."""
    spec_hash: Annotated[Digest, Field(default_factory=str)]
    """Hash of the fields of the spec that its pods are made from."""
    topology_hash: Annotated[Digest, Field(default_factory=str)]
    """Hash of the links and node speeds under which the nodes were chosen."""
    cause: EntryCause | None = None
    """Why it is being aborted."""


class LedgerSpec(Part):
    """The leader and what it has in flight."""

    epoch: Count
    """Raised by each new leader before anything else."""
    incarnation: Annotated[str, Field(max_length=64)]
    """Random word of this installation; a ledger made anew has another."""
    holder: Name
    """Identity of the leader."""
    entries: Annotated[tuple[Entry, ...], Field(max_length=ENTRIES_MAX)] = ()
    """Attempts in flight; settled ones leave."""


class Ledger(Resource):
    """Internal to the operator: its epoch and the attempts it is starting or aborting. Do not edit.
    There is one, named default."""

    model_config = ConfigDict(json_schema_extra=singleton("Ledger"))

    kind: Literal["Ledger"] = "Ledger"
    spec: LedgerSpec
    """The leader and what it has in flight."""


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
