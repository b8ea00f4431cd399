"""Placement: who goes where in one attempt of a job, from where it resumes, and why."""

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
    """What crosses the borders of the domains of one level."""

    level: Level
    """Name of the level."""
    bytes: Count
    """Bytes a step, with ranks as they are placed."""
    network_order_bytes: Count
    """The same if ranks were in the network's order."""


class Predicted(Part):
    """How long a training step is predicted to take, in seconds as decimal numbers."""

    machines: Annotated[
        tuple[Annotated[str, Field(max_length=64)], ...], Field(max_length=MACHINES_MAX)
    ] = ()
    """Kinds of the machines."""
    step_seconds: Decimal
    """With ranks as they are placed."""
    network_order_seconds: Decimal
    """If ranks were in the network's order: domain after domain, as schedulers number them that
    know the network and not the job."""
    next_best_seconds: Decimal
    """In the next best of the orders that were looked at."""
    other_jobs_seconds: Decimal = "0"
    """How much of it, with ranks as they are placed, goes to what other jobs were known to send
    over the same links by then."""
    slow_nodes_seconds: Decimal = "0"
    """How much of it, with ranks as they are placed, goes to nodes that were measured to be slower
    than most of their kind."""
    exposed_communication_seconds: Decimal | None = None
    """How much of it, with ranks as they are placed, is communication that no computation
    overlaps."""


class RankMapping(Part):
    """What the order of ranks is good for."""

    crossing: Annotated[tuple[LevelCrossing, ...], Field(max_length=LEVELS_MAX)] = ()
    """What crosses the borders of each level's domains, the coarsest first."""
    predicted: Predicted | None = None
    """How long a step takes; none where the cost model does not know the machines."""
    communication: Literal["Derived", "Measured"] = "Derived"
    """Whether what ranks send each other follows from what the job says of itself, or was seen in
    a pre-run."""
    other_devices: Annotated[
        tuple[Annotated[str, Field(max_length=64)], ...], Field(max_length=MACHINES_MAX)
    ] = ()
    """Kinds of these nodes' devices that the job's profile was not taken on: for them it is left
    aside until the job has one that was."""
    moved: Count = 0
    """Number of node ranks that are on other nodes than in the attempt before."""
    truncated: Code | None = None
    """Why the search for nodes and an order of ranks ended early. WorkBudgetExceeded: planning the
    job would take more work than one job may take in a scheduling cycle, or choosing nodes for all
    jobs more than one cycle may take. The best order found by then is used, and the network's order
    where there is no prediction. MappingLate: the order of ranks was not computed within two
    seconds. MappingFailed: its computation failed. The ranks are in the network's order then. None
    if it was complete."""


class PlacedRole(Part):
    """A role of the attempt."""

    name: Annotated[str, Field(max_length=ROLE_NAME_LENGTH_MAX)]
    """Name of the role."""
    replicas: Annotated[Count, Field(ge=1)]
    """Number of its pods in this attempt."""


class PlacementSpec(Part):
    """Who goes where; never changes."""

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
    """Attempt this placement is of."""
    purpose: Literal["Training", "PreRun"] = "Training"
    """PreRun: the attempt only records what ranks send, on fewer nodes than the job has. Its
    checkpoints are never read."""
    epoch: Count
    """Epoch of the leader that decided it."""
    nodes: Annotated[NodeList, Field(min_length=1)]
    """Node of each pod, in the order of the roles."""
    roles: Annotated[tuple[PlacedRole, ...], Field(default_factory=tuple, max_length=ROLES_MAX)]
    """Roles whose pods these are, in order."""
    spans: Annotated[tuple[Span, ...], Field(max_length=LEVELS_MAX)] = ()
    """How far the nodes spread at each level of the fabric, the coarsest first."""
    resume: Annotated[tuple[Checkpoint, ...], Field(max_length=CHECKPOINTS_MAX)] = ()
    """Up to which step the checkpoints that each group committed in each earlier attempt may be
    read, the newest attempt first. A group without any starts from the beginning."""
    topology_hash: Annotated[Digest, Field(default_factory=str)]
    """Hash of the links and node speeds under which the nodes were chosen."""
    mapping: RankMapping | None = None
    """What the order of ranks is good for; none where the job does not say what its ranks do."""
    reason: Sentence
    """Why this attempt was placed: the first start, or what ended the attempt before."""


class Placement(Resource):
    """Which node each node rank of one attempt of a TrainingJob runs on, and why."""

    kind: Literal["Placement"] = "Placement"
    spec: PlacementSpec
    """Who goes where; never changes."""


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
