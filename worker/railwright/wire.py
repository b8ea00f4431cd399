"""The messages between launchers and the operator: both ends import this file and nothing else.

JSON over HTTP, one POST a message, a bearer token in the header (a projected service account token
bound to the pod). Three paths: ``/v1/register`` until the answer says "go", ``/v1/beat`` every
``BEAT_INTERVAL_S``, ``/v1/commit`` before a checkpoint's manifest is renamed into place. A fourth,
``/v1/profile``, takes what ranks have recorded (``railwright.profile``); the answer is "go" once
what all have told is kept for good.

Statuses a launcher must know: 200; 400 malformed; 403 the token is not this rank's; 409 the attempt
was revoked (stop, write nothing more); 413 too large; 425 the operator does not know this attempt
yet (retry); 503 not the leader or overloaded (retry with backoff).

``decode`` trusts nothing: a field's range stands in its type, and whatever is outside is refused
with a WireError that names the field. Standard library only: this file is copied into users'
images.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
import types
import typing
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Never, TypeVar

VERSION = 1
MESSAGE_BYTES_MAX = 16 * 1024
LAST_LINES_BYTES_MAX = 4 * 1024
BEAT_INTERVAL_S = 2.0
REGISTER_INTERVAL_S = 0.5
STEP_MAX = 10**12
ATTEMPT_MAX = 10**9
NODES_MAX = 16_384
PROCESSES_MAX = 64
RANKS_MAX = NODES_MAX * PROCESSES_MAX
DEPTH_MAX = 8
NAME_BYTES_MAX = 256
SENTENCE_BYTES_MAX = 1_024
MISSING_MAX = 1_024
RESUME_MAX = 256
SKIPPED_MAX = 8
SHOWN_CHARACTERS_MAX = 60

# A string that is never closed runs to the end, so that each byte is looked at once.
STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)

Kind = TypeVar("Kind")


class WireError(ValueError):
    """A message that cannot be read: which field, what was seen, what was expected."""


@dataclass(frozen=True, slots=True)
class Between:
    """The range of a whole number, both ends included."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class AtMost:
    """The most UTF-8 bytes of a string, or items of a list."""

    count: int


Step = Annotated[int, Between(0, STEP_MAX)]
Attempt = Annotated[int, Between(1, ATTEMPT_MAX)]
NodeRank = Annotated[int, Between(0, NODES_MAX - 1)]
Rank = Annotated[int, Between(0, RANKS_MAX - 1)]
Port = Annotated[int, Between(1, 65_535)]
ProcessCount = Annotated[int, Between(0, PROCESSES_MAX)]
Name = Annotated[str, AtMost(NAME_BYTES_MAX)]
Sentence = Annotated[str, AtMost(SENTENCE_BYTES_MAX)]


class Phase(StrEnum):
    """What a rank is doing, as its script or the checkpointer reports it."""

    STARTING = "Starting"
    TRAINING = "Training"
    EVALUATING = "Evaluating"
    CHECKPOINTING = "Checkpointing"


class Order(StrEnum):
    """What the operator asks of a launcher."""

    WAIT = "wait"
    GO = "go"
    CONTINUE = "continue"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Member:
    """Who speaks: one launcher, that is one pod, of one attempt of one job."""

    job_uid: Name
    attempt: Attempt
    node_rank: NodeRank


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A committed checkpoint: the attempt that wrote it and the optimiser step it holds."""

    attempt: Attempt
    step: Step


@dataclass(frozen=True, slots=True)
class Progress:
    """The newest report of the lowest rank of a node that reports at all."""

    step: Step
    total_steps: Step | None = None
    loss: float | None = None
    samples_per_s: float | None = None
    phase: Phase = Phase.TRAINING


@dataclass(frozen=True, slots=True)
class Failure:
    """The first rank of this node that ended with something else than 0.

    ``signal`` is set when a signal ended it; ``message`` is the launcher's own reason when the
    process never ran (for example: the command does not exist). A pod's termination message is one
    of these too.
    """

    rank: Rank
    exit_code: Annotated[int, Between(0, 255)]
    signal: Name | None = None
    message: Sentence | None = None
    last_lines: Annotated[str, AtMost(LAST_LINES_BYTES_MAX)] = ""


@dataclass(frozen=True, slots=True)
class Register:
    """A launcher is up. ``address`` and ``master_port`` are where its first rank can listen."""

    member: Member
    address: Name
    master_port: Port
    num_processes: Annotated[int, Between(1, PROCESSES_MAX)]
    version: Annotated[int, Between(VERSION, VERSION)] = VERSION


@dataclass(frozen=True, slots=True)
class World:
    """What every rank needs to know once all are there.

    ``resume`` lists, newest attempt first, up to which step each attempt's checkpoints may be read;
    empty means: start from the beginning.
    """

    world_size: Annotated[int, Between(1, RANKS_MAX)]
    num_nodes: Annotated[int, Between(1, NODES_MAX)]
    first_rank: Rank
    master_address: Name
    master_port: Port
    resume: Annotated[tuple[Checkpoint, ...], AtMost(RESUME_MAX)] = ()


@dataclass(frozen=True, slots=True)
class Registered:
    """Wait (with the first MISSING_MAX node ranks that are missing), go (with the world), or stop.

    Raises WireError when it says go without a world.
    """

    order: Order
    missing: Annotated[tuple[NodeRank, ...], AtMost(MISSING_MAX)] = ()
    world: World | None = None

    def __post_init__(self) -> None:
        if self.order is Order.GO and self.world is None:
            raise WireError(
                "Registered.world: seen null, expected a world, because the order is go"
            )


@dataclass(frozen=True, slots=True)
class Beat:
    """The launcher lives. ``running`` and ``exited`` count its processes; exits with 0 included.

    ``resumed_from`` is what rank 0 loaded (None: nothing or not known yet); ``committed`` the
    newest checkpoint this node's rank 0 committed; ``skipped`` says which checkpoints were found
    torn. The master's address is repeated from the world: an operator that restarted while it gave
    the start learns it again, for the launchers that still wait.
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


@dataclass(frozen=True, slots=True)
class BeatAnswer:
    """Continue, or stop with the reason."""

    order: Order
    reason: Sentence = ""


@dataclass(frozen=True, slots=True)
class Commit:
    """Rank 0 asks to rename the manifest of this step into place."""

    member: Member
    step: Step


@dataclass(frozen=True, slots=True)
class CommitAnswer:
    """Granted: the operator has recorded the step durably. Refused: the attempt was revoked."""

    granted: bool
    reason: Sentence = ""


Message = Register | Registered | Beat | BeatAnswer | Commit | CommitAnswer


def encode(message: Any, *, bytes_max: int = MESSAGE_BYTES_MAX) -> bytes:
    """The message, a dataclass such as those above, as JSON.

    Raises WireError when it is larger than a receiver will read, or holds a number or a string
    that JSON in UTF-8 cannot carry.
    """
    kind = type(message).__name__
    try:
        text = json.dumps(
            dataclasses.asdict(message),
            allow_nan=False,
            ensure_ascii=False,
            separators=(",", ":"),
        )
        data = text.encode()
    except ValueError as error:
        raise WireError(f"{kind} cannot be sent: {error}") from error
    if len(data) > bytes_max:
        raise WireError(f"{kind} has {len(data)} bytes, at most {bytes_max}")
    return data


def decode(kind: type[Kind], data: bytes, *, bytes_max: int = MESSAGE_BYTES_MAX) -> Kind:
    """The message of the given kind in the bytes.

    Raises WireError, and never anything else, for what is not exactly such a message: not JSON in
    UTF-8, too large or too deep, duplicate or unknown or missing fields, wrong types, numbers that
    are not finite or out of range.
    """
    if len(data) > bytes_max:
        raise WireError(f"{kind.__name__} has {len(data)} bytes, at most {bytes_max}")
    _check_depth(kind.__name__, data)
    try:
        value = json.loads(
            data.decode(), object_pairs_hook=_fields_once, parse_constant=_refuse_constant
        )
    except WireError:
        raise
    except ValueError as error:
        raise WireError(f"{kind.__name__}: expected JSON in UTF-8: {error}") from error
    return typing.cast("Kind", _message(kind, value, kind.__name__))


def fitted(text: str, bytes_max: int) -> str:
    """As much of the start of the text as a field of that many bytes takes."""
    return text.encode("utf-8", "replace")[:bytes_max].decode("utf-8", "ignore")


def _check_depth(name: str, data: bytes) -> None:
    """Refuses nesting before the parser recurses into it."""
    if data.count(b"[") + data.count(b"{") <= DEPTH_MAX:
        return
    depth = 0
    for bracket in re.findall(rb"[\[\]{}]", STRING.sub(b"", data)):
        depth += 1 if bracket in b"[{" else -1
        if depth > DEPTH_MAX:
            raise WireError(f"{name} is nested deeper than {DEPTH_MAX}")


def _fields_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name in fields:
            raise WireError(f"{_shown(name)}: seen twice in one object, expected once")
        fields[name] = value
    return fields


def _refuse_constant(constant: str) -> Never:
    raise WireError(f"seen {constant}, expected a finite number")


def _message(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        _refuse(where, value, "an object")
    hints = _hints(kind)
    unknown = next((name for name in value if name not in hints), None)
    if unknown is not None:
        known = ", ".join(hints)
        raise WireError(f"{where}: seen the field {_shown(unknown)}, expected only {known}")
    for field in dataclasses.fields(kind):
        if field.name not in value and field.default is dataclasses.MISSING:
            raise WireError(f"{where}.{field.name}: missing")
    return kind(
        **{name: _value(hints[name], item, f"{where}.{name}") for name, item in value.items()}
    )


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind, include_extras=True)


def _value(hint: Any, value: Any, where: str, bound: Between | AtMost | None = None) -> Any:
    origin = typing.get_origin(hint)
    if origin is Annotated:
        base, bound = typing.get_args(hint)
        return _value(base, value, where, bound)
    if origin in (types.UnionType, typing.Union):
        inner = next(item for item in typing.get_args(hint) if item is not types.NoneType)
        return None if value is None else _value(inner, value, where)
    if origin is tuple:
        return _items(hint, value, where, bound)
    if dataclasses.is_dataclass(hint):
        return _message(hint, value, where)
    return _scalar(hint, value, where, bound)


def _items(hint: Any, value: Any, where: str, bound: Any) -> tuple[Any, ...]:
    assert isinstance(bound, AtMost), f"{where} has no bound"
    if not isinstance(value, list) or len(value) > bound.count:
        _refuse(where, value, f"a list of at most {bound.count}")
    inner = typing.get_args(hint)[0]
    return tuple(_value(inner, item, f"{where}[{index}]") for index, item in enumerate(value))


def _scalar(hint: Any, value: Any, where: str, bound: Any) -> Any:
    if hint is bool:
        return value if isinstance(value, bool) else _refuse(where, value, "true or false")
    if hint is int:
        assert isinstance(bound, Between), f"{where} has no bound"
        whole = isinstance(value, int) and not isinstance(value, bool)
        if whole and bound.low <= value <= bound.high:
            return value
        return _refuse(where, value, f"a whole number from {bound.low} to {bound.high}")
    if hint is float:
        return _finite(value, where)
    if not isinstance(value, str):
        return _refuse(where, value, "a string")
    if issubclass(hint, StrEnum):
        choices = [str(choice) for choice in hint]
        return hint(value) if value in choices else _refuse(where, value, " or ".join(choices))
    assert isinstance(bound, AtMost), f"{where} has no bound"
    if re.search("[\ud800-\udfff]", value) or len(value.encode()) > bound.count:
        _refuse(where, value, f"at most {bound.count} bytes of UTF-8")
    return value


def _finite(value: Any, where: str) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and abs(value) <= 1e300 and math.isfinite(value):
        return float(value)
    return _refuse(where, value, "a finite number, at most 1e300 in size")


def _refuse(where: str, value: Any, expected: str) -> Never:
    raise WireError(f"{where}: seen {_shown(value)}, expected {expected}")


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    shown = repr(value) if not isinstance(value, str) else ascii(value)
    return shown if len(shown) <= SHOWN_CHARACTERS_MAX else f"{shown[:SHOWN_CHARACTERS_MAX]}…"
