"""Placement: the nodes of one attempt of a job, its resume points, and the reason for it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from railwright_api import names
from railwright_api.fabric import Span
from railwright_api.interconnect import LEVELS_MAX, Level
from railwright_api.schema import (
    AGE,
    ROLE_NAME_LENGTH_MAX,
    ROLES_MAX,
    Code,
    Column,
    Count,
    Decimal,
    Definition,
    NodeList,
    Part,
    Resource,
    Rule,
    Sentence,
    rules,
)
from railwright_api.training_job_status import CHECKPOINTS_MAX, Checkpoint, Digest

MACHINES_MAX = 16


class LevelCrossing(Part):
    """Traffic between the domains of one level of the fabric."""

    level: Level
    """Name of the level."""
    bytes: Count
    """Bytes that cross between domains in one training step, in the order of ranks that is used."""
    network_order_bytes: Count
    """Bytes that would cross between domains in one training step, with ranks in network order."""


class Predicted(Part):
    """Predicted time of a training step, in seconds as decimal numbers."""

    machines: Annotated[
        tuple[Annotated[str, Field(max_length=64)], ...], Field(max_length=MACHINES_MAX)
    ] = ()
    """Kinds of the machines that the prediction is for."""
    step_seconds: Decimal
    """Time of a step in the order of ranks that is used."""
    network_order_seconds: Decimal
    """Time of a step with ranks in network order: numbered domain after domain, without regard to
    the traffic of the job."""
    next_best_seconds: Decimal
    """Time of a step in the second best of the evaluated orders of ranks."""
    other_jobs_seconds: Decimal = "0"
    """Part of stepSeconds that is due to the traffic of other jobs on the same links, as known when
    the placement was decided."""
    slow_nodes_seconds: Decimal = "0"
    """Part of stepSeconds that is due to nodes that were measured to be slower than most nodes of
    their kind."""
    exposed_communication_seconds: Decimal | None = None
    """Part of stepSeconds that is communication without overlapping computation."""


class RankMapping(Part):
    """Order of ranks: its traffic and its predicted step time."""

    crossing: Annotated[tuple[LevelCrossing, ...], Field(max_length=LEVELS_MAX)] = ()
    """Traffic between the domains of each level, the coarsest level first."""
    predicted: Predicted | None = None
    """Predicted step time. Not set if the cost model does not have the machines."""
    communication: Literal["Derived", "Measured"] = "Derived"
    """Source of the traffic between ranks. Derived: computed from the workload in the job's spec.
    Measured: recorded in the job's profile."""
    other_devices: Annotated[
        tuple[Annotated[str, Field(max_length=64)], ...], Field(max_length=MACHINES_MAX)
    ] = ()
    """Kinds of devices of these nodes on which the job's profile was not recorded. The profile is
    not used for them."""
    moved: Count = 0
    """Number of node ranks that run on another node than in the previous attempt."""
    truncated: Code | None = None
    """Why the search for nodes and an order of ranks ended early. WorkBudgetExceeded: planning the
    job would take more work than one job may take in a scheduling cycle, or choosing nodes for all
    jobs more than one cycle may take. The best order found by then is used, or network order
    if there is no prediction. MappingLate: the order of ranks was not computed within two
    seconds. MappingFailed: its computation failed. In both cases ranks are in network order.
    Not set if the search was complete."""


class PlacedRole(Part):
    """A role of the job in this attempt."""

    name: Annotated[str, Field(max_length=ROLE_NAME_LENGTH_MAX)]
    """Name of the role."""
    replicas: Annotated[Count, Field(ge=1)]
    """Number of its pods in this attempt."""


class PlacementSpec(Part):
    """Specification of a Placement. Immutable."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "self == oldSelf",
                "spec never changes: a new attempt gets a Placement of its own",
            )
        )
    )

    job_uid: Annotated[str, Field(alias="jobUID", min_length=1, max_length=64)]
    """UID of the job."""
    attempt: Annotated[Count, Field(ge=1)]
    """Number of the attempt."""
    purpose: Literal["Training", "PreRun"] = "Training"
    """Purpose of the attempt. Training: it trains. PreRun: it only records the traffic of ranks, on
    fewer nodes than the job has; its checkpoints are never read."""
    epoch: Count
    """Epoch of the leader that decided the placement."""
    nodes: Annotated[NodeList, Field(min_length=1)]
    """Names of the nodes, one for each pod, in the order of the roles."""
    roles: Annotated[tuple[PlacedRole, ...], Field(default_factory=tuple, max_length=ROLES_MAX)]
    """Roles of the attempt. The pods are numbered in this order."""
    spans: Annotated[tuple[Span, ...], Field(max_length=LEVELS_MAX)] = ()
    """Number of domains that the nodes span at each level of the fabric, the coarsest first."""
    resume: Annotated[tuple[Checkpoint, ...], Field(max_length=CHECKPOINTS_MAX)] = ()
    """Resume points, the newest attempt first: for each group and each earlier attempt, the last
    step whose checkpoint may be read. A group without a resume point starts from the beginning."""
    topology_hash: Annotated[Digest, Field(default_factory=str)]
    """Hash of the links and node speeds under which the nodes were chosen."""
    mapping: RankMapping | None = None
    """Order of ranks. Not set if the traffic of the job is unknown."""
    reason: Sentence
    """Reason for the attempt: the first start, or the cause of the previous attempt's end."""


class Placement(Resource):
    """Assignment of the pods of one attempt of a TrainingJob to nodes. The operator creates one for
    each attempt."""

    kind: Literal["Placement"] = "Placement"
    spec: PlacementSpec
    """Nodes of the attempt, its resume points, and the reason for it. Immutable."""


DEFINITION = Definition(
    Placement,
    plural=names.PLACEMENTS,
    scope="Namespaced",
    categories=("railwright",),
    columns=(
        Column("Attempt", ".spec.attempt", "integer"),
        Column("Step s", ".spec.mapping.predicted.stepSeconds"),
        Column("Unmapped s", ".spec.mapping.predicted.networkOrderSeconds"),
        Column("Reason", ".spec.reason"),
        AGE,
        Column("Others s", ".spec.mapping.predicted.otherJobsSeconds", wide=True),
        Column("Slow s", ".spec.mapping.predicted.slowNodesSeconds", wide=True),
        Column("Nodes", ".spec.nodes", wide=True),
    ),
    has_status=False,
)
