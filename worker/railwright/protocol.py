"""The messages between launchers and the operator, imported by both ends.

JSON over HTTP, one POST a message, with a bearer token in the header (a projected service account
token that is bound to the pod). Paths:

    /v1/register   until the response has "go"
    /v1/beat       at the interval in the last response
    /v1/commit     before the manifest of a checkpoint is renamed into place
    /v1/profile    the recording of a rank (``railwright.profile``); "go" once it is stored

A launcher acts on these statuses: 200; 307 the leader is at ``Location``; 400 malformed; 403 the
token is not this rank's; 409 the attempt was revoked (stop, write nothing more); 413 too large; 425
the attempt is not expected yet (retry); 503 not the leader, or overloaded (retry with back-off).
Every other response than 200 has a ``Refusal``.

``decode`` validates every field, and skips those of a later version: see ``railwright.codec``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from railwright.codec import FLOAT_MAX as FLOAT_MAX
from railwright.codec import MESSAGE_BYTES_MAX as MESSAGE_BYTES_MAX
from railwright.codec import AtMost as AtMost
from railwright.codec import Between as Between
from railwright.codec import Neutral as Neutral
from railwright.codec import ProtocolError as ProtocolError
from railwright.codec import decode as decode
from railwright.codec import encode as encode
from railwright.codec import fitted as fitted

VERSION = 1
VERSION_MAX = 1_000
LAST_LINES_BYTES_MAX = 4 * 1024
HEARTBEAT_INTERVAL_S = 2.0
"""The shortest: before an answer states another, and after the first heartbeat without answer."""

HEARTBEAT_INTERVAL_S_MAX = 60
REGISTER_INTERVAL_S = 0.5
STEP_MAX = 10**12
ATTEMPT_MAX = 10**9
SIZE_BYTES_MAX = 2**62
NODES_MAX = 16_384
PROCESSES_MAX = 64
RANKS_MAX = NODES_MAX * PROCESSES_MAX
NAME_BYTES_MAX = 256
SENTENCE_BYTES_MAX = 1_024
MISSING_MAX = 1_024
RESUME_MAX = 16
GROUPS_MAX = 16
GROUP_BYTES_MAX = 64
RUN_BYTES_MAX = 64
SKIPPED_MAX = 8
RANKS_NAMED_MAX = 8
STACKS_MAX = 4
STACK_BYTES_MAX = 512

Step = Annotated[int, Between(0, STEP_MAX)]
Attempt = Annotated[int, Between(1, ATTEMPT_MAX)]
NodeRank = Annotated[int, Between(0, NODES_MAX - 1)]
Rank = Annotated[int, Between(0, RANKS_MAX - 1)]
Port = Annotated[int, Between(1, 65_535)]
ProcessCount = Annotated[int, Between(0, PROCESSES_MAX)]
IntervalS = Annotated[int, Between(1, HEARTBEAT_INTERVAL_S_MAX)]
SizeBytes = Annotated[int, Between(0, SIZE_BYTES_MAX)]
Name = Annotated[str, AtMost(NAME_BYTES_MAX)]
GroupName = Annotated[str, AtMost(GROUP_BYTES_MAX)]
Sentence = Annotated[str, AtMost(SENTENCE_BYTES_MAX)]


class Phase(StrEnum):
    """What a rank is doing, as its script or the checkpointer reports it."""

    STARTING = "Starting"
    TRAINING = "Training"
    EVALUATING = "Evaluating"
    CHECKPOINTING = "Checkpointing"


class Order(StrEnum):
    """An order of the operator to a launcher."""

    WAIT = "wait"
    GO = "go"
    CONTINUE = "continue"
    STOP = "stop"


AnyPhase = Annotated[Phase, Neutral(Phase.EVALUATING)]
"""A phase of a later version is read as one in which steps may stall."""

AnyOrder = Annotated[Order, Neutral(Order.WAIT)]
"""An order of a later version has no effect: a launcher at the barrier registers again, and a
running one goes on."""


@dataclass(frozen=True, slots=True)
class Member:
    """The sender of a message: one launcher, that is, one pod of one attempt of one job."""

    job_uid: Name
    attempt: Attempt
    node_rank: NodeRank


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A committed checkpoint of a group: the attempt that wrote it and the step it holds."""

    attempt: Attempt
    step: Step


@dataclass(frozen=True, slots=True)
class Saved:
    """What the newest committed checkpoint cost: the size of the files of all ranks of the group,
    and the time from the begin of the save until the commit."""

    size_bytes: SizeBytes
    seconds: float


@dataclass(frozen=True, slots=True)
class Progress:
    """The newest report of a rank, as sent to its launcher. In a heartbeat it is that of the lowest
    rank of the node that reports at all."""

    step: Step
    total_steps: Step | None = None
    loss: float | None = None
    samples_per_s: float | None = None
    phase: AnyPhase = Phase.TRAINING


@dataclass(frozen=True, slots=True)
class Stack:
    """An equal stack of ``count`` ranks, the first of them in ``ranks``: their frames, or the state
    of their process if they did not respond."""

    ranks: Annotated[tuple[Rank, ...], AtMost(RANKS_NAMED_MAX)]
    count: ProcessCount
    answered: bool
    text: Annotated[str, AtMost(STACK_BYTES_MAX)]


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of a node's ranks, in a size that does not depend on their number.

    ``newest`` is the highest step of any rank. ``slowest`` is the step of the rank without progress
    for the longest time (among those that made a step since their first report, if any did),
    ``ranks`` are the first ones at that step, and ``lag_s`` is that time; 0 before the first step.
    ``behind`` ranks are below ``newest``, ``reporting`` ranks have reported a step. ``still_s`` is
    the time since any rank made a step or changed its phase, else since the start. Of the ``timed``
    steps of the rank with the most steps, 99 % took ``p99_s`` or less; of those of the slowest
    rank, ``lag_p99_s``; 0 while too few were timed. ``phase`` is the one of the ranks' phases that
    may last the longest. ``finishing``: a rank made the last step that it announced.
    """

    newest: Step
    slowest: Step
    ranks: Annotated[tuple[Rank, ...], AtMost(RANKS_NAMED_MAX)]
    behind: ProcessCount
    reporting: ProcessCount
    still_s: float
    lag_s: float
    timed: Step
    p99_s: float
    lag_p99_s: float
    phase: AnyPhase
    finishing: bool


@dataclass(frozen=True, slots=True)
class Failure:
    """The first rank of this node that ended with something else than 0.

    ``signal`` is set when a signal ended it; ``message`` is the launcher's own reason when the
    process never ran (for example: the command does not exist). ``out_of_memory``: the kernel
    killed it for memory, under a limit of ``memory_limit`` bytes, None if the container has none. A
    pod's termination message is one of these too.
    """

    rank: Rank
    exit_code: Annotated[int, Between(0, 255)]
    signal: Name | None = None
    message: Sentence | None = None
    last_lines: Annotated[str, AtMost(LAST_LINES_BYTES_MAX)] = ""
    out_of_memory: bool = False
    memory_limit: Annotated[int, Between(0, 2**63 - 1)] | None = None


@dataclass(frozen=True, slots=True)
class Register:
    """A launcher is up. ``address`` and ``master_port`` are where its first rank can listen."""

    member: Member
    address: Name
    master_port: Port
    num_processes: Annotated[int, Between(1, PROCESSES_MAX)]
    version: Annotated[int, Between(VERSION, VERSION_MAX)] = VERSION


@dataclass(frozen=True, slots=True)
class Group:
    """A group of ranks with checkpoints of its own.

    ``resume`` lists, newest attempt first, the step up to which each attempt's checkpoints may be
    read; empty means a start from the beginning. ``run`` is the address and port of its first rank
    in this attempt, empty if it has none, or if the operator does not know it yet.
    """

    name: GroupName
    resume: Annotated[tuple[Checkpoint, ...], AtMost(RESUME_MAX)] = ()
    run: Annotated[str, AtMost(RUN_BYTES_MAX)] = ""


@dataclass(frozen=True, slots=True)
class WorldInfo:
    """The parameters of every rank, sent once all are registered.

    Ranks and nodes are of ``group``; ``group_rank`` is the index of this node there. ``role_rank``
    is the first rank of this node among the ``role_size`` ranks of its role. ``groups`` are those
    of the attempt, and earlier ones whose checkpoints may be read.
    """

    world_size: Annotated[int, Between(1, RANKS_MAX)]
    num_nodes: Annotated[int, Between(1, NODES_MAX)]
    first_rank: Rank
    master_address: Name
    master_port: Port
    group_rank: NodeRank
    role_rank: Rank
    role_size: Annotated[int, Between(1, RANKS_MAX)]
    group: GroupName
    groups: Annotated[tuple[Group, ...], AtMost(GROUPS_MAX)] = ()


@dataclass(frozen=True, slots=True)
class Registered:
    """The response to a registration: wait (with the first MISSING_MAX missing node ranks), go
    (with the world), or stop. ``interval_s`` until the next registration; None:
    ``REGISTER_INTERVAL_S``.

    Raises ProtocolError for a go without a world.
    """

    order: AnyOrder
    missing: Annotated[tuple[NodeRank, ...], AtMost(MISSING_MAX)] = ()
    world: WorldInfo | None = None
    interval_s: IntervalS | None = None

    def __post_init__(self) -> None:
        if self.order is Order.GO and self.world is None:
            raise ProtocolError(
                "Registered.world: seen null, expected a world, because the order is go"
            )


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A heartbeat. ``running`` and ``exited`` count processes; exits with 0 included.

    ``resumed_from`` is the checkpoint that rank 0 of the group loaded (None: none, or not yet);
    ``committed`` the newest one that it committed, which cost ``saved``; ``skipped`` names torn
    checkpoints. The master's
    address is repeated from the world: an operator that restarted during the start needs it for
    launchers that still wait. ``stacks`` is the response to ``HeartbeatAnswer.stacks``, a heartbeat
    or two later. ``steps`` is None in most
    heartbeats while all ranks train and make progress.
    """

    member: Member
    sequence: Step
    running: ProcessCount
    exited: ProcessCount
    progress: Progress | None = None
    failure: Failure | None = None
    resumed_from: Checkpoint | None = None
    committed: Checkpoint | None = None
    skipped: Annotated[tuple[Name, ...], AtMost(SKIPPED_MAX)] = ()
    master_address: Name = ""
    master_port: Annotated[int, Between(0, 65_535)] = 0
    steps: Steps | None = None
    stacks: Annotated[tuple[Stack, ...], AtMost(STACKS_MAX)] | None = None
    saved: Saved | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """Continue, or stop with the reason. ``stacks``: the launcher is to send the stacks of its
    ranks. ``interval_s`` until the next heartbeat; None: ``HEARTBEAT_INTERVAL_S``."""

    order: AnyOrder
    reason: Sentence = ""
    stacks: bool = False
    interval_s: IntervalS | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """The request of rank 0 of a group to rename the manifest of this step into place."""

    member: Member
    step: Step


@dataclass(frozen=True, slots=True)
class CommitAnswer:
    """Granted: the operator has recorded the step durably. Refused: the attempt was revoked."""

    granted: bool
    reason: Sentence = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The body of every answer that is not 200: the reason for the log."""

    error: Sentence


Message = Register | Registered | Heartbeat | HeartbeatAnswer | Commit | CommitAnswer
