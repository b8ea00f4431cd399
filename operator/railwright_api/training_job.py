"""TrainingJob: one distributed training run, all of its nodes or none, kept alive to its end."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from railwright_api import names
from railwright_api.conditions import Conditions
from railwright_api.pod_template import Amounts, PodTemplate
from railwright_api.schema import (
    AGE,
    NODES_MAX,
    PROCESSES_MAX,
    RANKS_MAX,
    Code,
    Column,
    Count,
    Definition,
    Name,
    NodeList,
    Part,
    Resource,
    Rule,
    Sentence,
    Time,
    rules,
)

CHECKPOINTS_MAX = 16
LAST_LINES_LENGTH_MAX = 4096
SIGNAL_LENGTH_MAX = 32
TEN_YEARS_S = 315_360_000

Shape = Annotated[str, Field(max_length=64)]
"""Digest of what the pods of a job are made from."""


def _held(field: str, *, seen: tuple[str, ...] = (), optional: bool = False) -> Rule:
    """This field changes only in a job whose stored spec says suspend."""
    same = f"self.{field} == oldSelf.{field}"
    if optional:
        has, had = f"has(self.{field})", f"has(oldSelf.{field})"
        same = f"({has} == {had} && (!{has} || {same}))"
    change = " from %s to %s" if seen else ""
    return Rule(
        f"oldSelf.suspend || {same}",
        f"{field} cannot change{change} while the job is not suspended: set suspend: true and "
        f"apply, then change {field}, then set suspend: false",
        seen=seen,
        field=f".{field}",
    )


def _both(value: str) -> tuple[str, ...]:
    return value.replace("self.", "oldSelf."), value


_SHAPE = (
    _held("queue", seen=_both("self.queue")),
    _held(
        "priorityClassName",
        seen=_both("has(self.priorityClassName) ? self.priorityClassName : 'none'"),
        optional=True,
    ),
    _held("numNodes", seen=_both("string(self.numNodes)")),
    _held("numProcPerNode", seen=_both("string(self.numProcPerNode)")),
    _held("resourcesPerNode"),
    _held("template"),
)


class Phase(StrEnum):
    """Where the job stands."""

    QUEUED = "Queued"
    STARTING = "Starting"
    RUNNING = "Running"
    RECOVERING = "Recovering"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class Activity(StrEnum):
    """What the ranks say they are doing."""

    STARTING = "Starting"
    TRAINING = "Training"
    EVALUATING = "Evaluating"
    CHECKPOINTING = "Checkpointing"


class TrainingJobSpec(Part):
    """What to run, on how many nodes, and how often to try again."""

    model_config = ConfigDict(json_schema_extra=rules(*_SHAPE))

    queue: Annotated[str, Field(min_length=1, max_length=63)] = names.SINGLETON
    """Queue the job waits in. Can change only while the job is suspended."""
    priority_class_name: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """PriorityClass of the whole gang; none means priority 0, or the cluster's default class. Can
    change only while the job is suspended."""
    num_nodes: Annotated[int, Field(ge=1, le=NODES_MAX)]
    """Number of nodes, one pod on each; all start together or none. Can change only while the job
    is suspended."""
    num_proc_per_node: Annotated[int, Field(ge=1, le=PROCESSES_MAX)] = 1
    """Number of ranks on each node, one process each, commonly one for each device. Can change only
    while the job is suspended."""
    resources_per_node: Amounts = Field(default={})
    """What the ranks of one node need together: cpu, memory, ephemeral-storage, and devices by full
    name in whole numbers, such as nvidia.com/gpu 8. Requests and limits are both set to it. Can
    change only while the job is suspended."""
    backoff_limit: Annotated[int, Field(ge=0, le=100)] = 3
    """How many failures of the job's own making are retried, such as a rank that exits with an
    error. Lost nodes and evictions are always retried and do not count."""
    suspend: bool = False
    """True stops the job and frees its nodes; false queues it again, and it resumes from its newest
    checkpoint."""
    ttl_seconds_after_finished: Annotated[int, Field(ge=0, le=TEN_YEARS_S)] | None = None
    """Delete the job this many seconds after it succeeded or failed; none keeps it."""
    template: PodTemplate
    """The pod that runs on each node. Can change only while the job is suspended."""


class Progress(Part):
    """How far the ranks say they are."""

    step: Count
    """Optimiser steps done."""
    total_steps: Count | None = None
    """Optimiser steps to do."""
    percent: Annotated[str, Field(pattern="^[0-9]{1,3}%$", max_length=4)] | None = None
    """Share of the steps done, such as 42%."""
    loss: float | None = None
    """Loss at this step."""
    samples_per_second: Annotated[float, Field(ge=0)] | None = None
    """Samples trained on in a second, over all ranks."""
    phase: Activity = Activity.TRAINING
    """What the ranks are doing."""
    time: Time | None = None
    """When this was reported."""


class Checkpoint(Part):
    """The newest committed checkpoint of one attempt."""

    attempt: Count
    """Attempt that wrote it."""
    step: Count
    """Optimiser step it holds."""


class LastEnd(Part):
    """How the last attempt that ended, ended; for a failed job, its first failing rank."""

    attempt: Count
    """Attempt that ended."""
    cause: Code
    """What ended it, as one word."""
    message: Sentence
    """What ended it, as a sentence."""
    lost_nodes: NodeList | None = None
    """Nodes that were found lost."""
    node: Name | None = None
    """Node it happened on."""
    rank: Annotated[int, Field(ge=0, lt=RANKS_MAX)] | None = None
    """First rank that failed."""
    exit_code: Annotated[int, Field(ge=-(2**31), le=2**31 - 1)] | None = None
    """Exit code of that rank."""
    signal: Annotated[str, Field(max_length=SIGNAL_LENGTH_MAX)] | None = None
    """Signal that ended that rank, such as SIGKILL."""
    last_lines: Annotated[str, Field(max_length=LAST_LINES_LENGTH_MAX)] | None = None
    """Last lines that rank wrote."""
    time: Time | None = None
    """When it was noticed."""


class TrainingJobStatus(Part):
    """How the job is doing."""

    observed_generation: Count | None = None
    """The metadata.generation this status is about."""
    phase: Phase = Phase.QUEUED
    """Where the job stands."""
    reason: Code | None = None
    """Why it stands there, as one word."""
    message: Sentence | None = None
    """Why it stands there, with the numbers."""
    conditions: Conditions = ()
    """Scheduled, Running, Healthy, Checkpointed, Suspended, Succeeded, Failed."""
    attempt: Count = 0
    """Newest attempt; pods are named job-attempt-rank."""
    ended_attempt: Count = 0
    """Newest attempt that has ended."""
    restarts: Count = 0
    """How often the job was started again after it had run."""
    failures: Count = 0
    """Ends that count against backoffLimit."""
    early_ends: Count = 0
    """Attempts in a row that ended before every rank was there; the wait doubles with each."""
    nodes: NodeList = ()
    """Node of each node rank of the current attempt."""
    shape: Shape | None = None
    """Digest of what the pods of the current attempt were made from: numNodes, numProcPerNode,
    priorityClassName, resourcesPerNode and template."""
    nodes_summary: Annotated[str, Field(max_length=1100)] | None = None
    """The nodes in short: their names if they are few, else their number."""
    racks: Annotated[int, Field(ge=0, le=NODES_MAX)] | None = None
    """Number of domains of the finest level of the fabric, commonly racks, that the nodes span."""
    progress: Progress | None = None
    """How far the ranks say they are."""
    checkpoints: Annotated[tuple[Checkpoint, ...], Field(max_length=CHECKPOINTS_MAX)] = ()
    """The newest committed checkpoint of each attempt, the newest attempt first."""
    last_end: LastEnd | None = None
    """How the last attempt that ended, ended."""
    started_at: Time | None = None
    """When every rank was there for the first time."""
    finished_at: Time | None = None
    """When the job succeeded or failed."""


class TrainingJob(Resource):
    """One distributed training run: all of its nodes start together, and it is kept alive through
    failures until it succeeds or its budget of failures is spent."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                f"self.metadata.name.size() <= {names.JOB_NAME_LENGTH_MAX}",
                'metadata.name: "%s" has %d characters, at most '
                f"{names.JOB_NAME_LENGTH_MAX}: pods are named job-attempt-rank, and that must stay "
                f"within {names.POD_NAME_LENGTH_MAX}",
                seen=("self.metadata.name", "self.metadata.name.size()"),
            ),
            Rule(
                "!self.metadata.name.contains('.')",
                'metadata.name: "%s" holds a dot, but it becomes part of host names: use "%s"',
                seen=("self.metadata.name", "self.metadata.name.replace('.', '-')"),
            ),
        )
    )

    kind: Literal["TrainingJob"] = "TrainingJob"
    spec: TrainingJobSpec
    """What to run, on how many nodes, and how often to try again."""
    status: TrainingJobStatus | None = None
    """How the job is doing; written by the operator."""


DEFINITION = Definition(
    TrainingJob,
    plural=names.TRAINING_JOBS,
    scope="Namespaced",
    short_names=("tj",),
    categories=("railwright",),
    columns=(
        Column("Phase", ".status.phase"),
        Column("Queue", ".spec.queue"),
        Column("Nodes", ".status.nodesSummary"),
        Column("Racks", ".status.racks", "integer"),
        Column("Step", ".status.progress.step", "integer"),
        Column("Progress", ".status.progress.percent"),
        Column("Restarts", ".status.restarts", "integer"),
        Column("Reason", ".status.reason"),
        AGE,
        Column("Message", ".status.message", wide=True),
    ),
)
