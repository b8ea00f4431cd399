"""TrainingJobStatus: what the operator writes on a TrainingJob."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from railwright_api.conditions import Conditions
from railwright_api.failure_policy import BACKOFF_LIMIT_MAX
from railwright_api.role import RoleName
from railwright_api.schema import (
    NODES_MAX,
    RANKS_MAX,
    Code,
    Count,
    Decimal,
    Name,
    NodeList,
    Part,
    Sentence,
    Time,
)

CHECKPOINTS_MAX = 256
"""Those of 16 attempts of 16 groups: of twice the groups that a job can have."""

LAST_LINES_LENGTH_MAX = 4096
SIGNAL_LENGTH_MAX = 32

Digest = Annotated[str, Field(max_length=64)]


Phase = Literal[
    "Queued", "Profiling", "Starting", "Running", "Recovering", "Suspended", "Succeeded", "Failed"
]
"""Where a job is in its lifecycle."""

Activity = Literal["Starting", "Training", "Evaluating", "Checkpointing"]
"""Activity of the ranks of an attempt."""


class Progress(Part):
    """Progress of the live attempt, as its ranks last reported it."""

    step: Count
    """Number of optimizer steps that are done."""
    total_steps: Count | None = None
    """Number of optimizer steps in the whole run. Not set if the script does not report it."""
    percent: Annotated[str, Field(pattern="^[0-9]{1,3}%$", max_length=4)] | None = None
    """Share of totalSteps that is done, for example 42%."""
    loss: Decimal | None = None
    """Loss at this step, as a decimal number."""
    samples_per_second: Decimal | None = None
    """Samples trained per second, over all ranks, as a decimal number."""
    phase: Activity = "Training"
    """What the ranks are doing: Starting, Training, Evaluating or Checkpointing."""
    time: Time | None = None
    """Time at which the operator received this progress."""


class Checkpoint(Part):
    """The newest checkpoint that a group committed in one attempt."""

    group: RoleName
    """Group of roles whose ranks wrote the checkpoint."""
    attempt: Count
    """Number of the attempt that wrote the checkpoint."""
    step: Count
    """Step at which it was written."""


class Termination(Part):
    """Why and where an attempt ended."""

    attempt: Count
    """Number of the attempt."""
    cause: Code
    """Machine-readable cause, such as NodeLost or RankFailed."""
    message: Sentence
    """Human-readable description of the cause."""
    lost_nodes: NodeList | None = None
    """Nodes that were lost, or whose launchers stopped responding."""
    node: Name | None = None
    """Node on which the attempt failed first."""
    rank: Annotated[int, Field(ge=0, lt=RANKS_MAX)] | None = None
    """First rank that failed."""
    exit_code: Annotated[int, Field(ge=-(2**31), le=2**31 - 1)] | None = None
    """Exit code of that rank."""
    signal: Annotated[str, Field(max_length=SIGNAL_LENGTH_MAX)] | None = None
    """Signal that ended that rank, such as SIGKILL."""
    last_lines: Annotated[str, Field(max_length=LAST_LINES_LENGTH_MAX)] | None = None
    """Last lines that the rank wrote to its output."""
    time: Time | None = None
    """Time at which the operator detected the end."""


class PreRun(Part):
    """The pre-run that the job needs before it starts."""

    spec_hash: Digest
    """Hash of the fields of the spec that the pre-run is made from: those of `status.specHash`,
    profiling, and workload without its profile. Another pre-run is made when they change. While the
    pre-run is the live attempt, `status.specHash` is this hash."""
    attempts: Count
    """Number of its attempts that ended without a profile."""
    message: Sentence | None = None
    """Why the job starts without a profile; none as long as a pre-run is to come."""


class SchedulingBackoff(Part):
    """A stage of the scheduling cycle that leaves the job out, because an operator hung in it."""

    stage: Code
    """Stage of the scheduling cycle, such as Decision."""
    generation: Count
    """The metadata.generation for which the stage hung. A new generation is handled at once."""
    hangs: Count
    """Number of consecutive hangs. The back-off doubles with each."""


class TrainingJobStatus(Part):
    """Most recently observed status of a TrainingJob. Written by the operator; read-only."""

    observed_generation: Count | None = None
    """The metadata.generation that this status describes."""
    phase: Phase = "Queued"
    """Simple, high-level summary of where the job is in its lifecycle."""
    reason: Code | None = None
    """Brief CamelCase reason why the job is in this phase."""
    message: Sentence | None = None
    """Human-readable details of the reason, with the numbers."""
    conditions: Conditions = ()
    """Current state of the job: Scheduled, Running, Healthy, Checkpointed, ProfileApplied,
    Suspended, Complete, Failed."""
    attempt: Count = 0
    """Number of the newest attempt. Its pods are named job-role-index-attempt."""
    ended_attempt: Count = 0
    """Number of the newest attempt that has ended."""
    restarts: Count = 0
    """Number of attempts that ended after all of their pods were bound and that another attempt
    followed. Suspending the job does not count."""
    moves: Count = 0
    """Number of restarts that migrated the job to nodes with a shorter step time."""
    failures: Count = 0
    """Number of failures that count against failurePolicy, since the job was created."""
    failure_times: Annotated[tuple[Time, ...], Field(max_length=BACKOFF_LIMIT_MAX + 1)] = ()
    """Times of the failures in the window that ended with the last one, the oldest first."""
    start_failures: Count = 0
    """Number of consecutive attempts that ended before every rank passed the start barrier. The
    back-off doubles with each."""
    hangs: Count = 0
    """Number of attempts that hung since the group that trains committed a checkpoint of a later
    step than all before. From the fourth on, each counts against failurePolicy."""
    nodes: Count | None = None
    """Number of nodes that the live attempt runs on, or the one that succeeded ran on. The
    Placement of the attempt has their names."""
    spec_hash: Digest | None = None
    """Hash of the fields of the spec that the live attempt was made from: priorityClassName,
    roles, topology and workload.role. While it is a pre-run, that of `status.preRun.specHash`."""
    racks: Annotated[int, Field(ge=0, le=NODES_MAX)] | None = None
    """Number of domains of the fabric's finest level, commonly racks, that the nodes span."""
    progress: Progress | None = None
    """Progress of the live attempt, as its ranks last reported it."""
    checkpoints: Annotated[tuple[Checkpoint, ...], Field(max_length=CHECKPOINTS_MAX)] = ()
    """The newest checkpoint that each group committed in each attempt, newest attempt first. In
    the next attempt each group resumes from one of its own."""
    pre_run: PreRun | None = None
    """The pre-run that the job needs before it starts, or that failed. Not set if it needs none."""
    scheduling_backoff: SchedulingBackoff | None = None
    """Set while a stage of the scheduling cycle leaves the job out, because an operator hung in
    it."""
    last_termination: Termination | None = None
    """How the last attempt that did not succeed ended. For a failed job, its first failing rank."""
    started_at: Time | None = None
    """Time at which every rank first passed the start barrier since the job was created or resumed.
    activeDeadlineSeconds is counted from it. Not set while the job is suspended."""
    finished_at: Time | None = None
    """Time at which the job succeeded or failed."""
