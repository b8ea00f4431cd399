"""How two agents begin a probe: both prove possession of their key, which is never sent.

Each pair has a key of its own. It is derived from the responder's token and the prober's name, by
whoever sends the prober: the controllers, or the person who runs a survey. The responder derives it
from the name that the prober gives. So an agent can speak for itself alone.

Messages are JSON objects behind their length in two bytes. The responder speaks first, with a
challenge; the prober answers with one of its own, with its name, with what it asks for, and with a
keyed hash of all that; the responder's hash, or a refusal, ends it. A recorded proof is of no use,
as the next challenge differs. What follows is not encrypted: it carries nothing but filler.
"""

from __future__ import annotations

import enum
import hmac
import json
import math
import secrets
from asyncio import IncompleteReadError, StreamReader, StreamWriter
from dataclasses import dataclass
from typing import Any

from railwright_topology.probing import addresses, keys

MESSAGE_BYTES_MAX = 1024
SECONDS_MAX = 10.0
HANDSHAKE_S = 5.0
GRACE_S = 5.0
"""So long a connection may last beyond what was asked for."""
ECHO_BYTES = 64
PORT_MAX = 65535
TOKEN_LENGTH_MIN = 16
_CHALLENGE_BYTES = 16


class ProbeError(Exception):
    """Why there is no measurement, as a sentence."""


class ProbeKind(enum.StrEnum):
    """Kind of a probe. In a task an agent measures another one and reports the result; in a crowd
    many do so at once, and only bandwidth counts."""

    LATENCY = "latency"
    BANDWIDTH = "bandwidth"
    TASK = "task"
    CROWD = "crowd"


@dataclass(frozen=True, slots=True)
class PairKey:
    """The shared secret of a prober and a responder, and the prober's name."""

    source: str
    secret: bytes


def pair_key(token: str, source: str) -> PairKey:
    """The key of the responder with this token and the prober of this name."""
    return PairKey(source, keys.pair_key(token, source).encode())


@dataclass(frozen=True, slots=True)
class Request:
    """One connection of a probe, and for how long it may last. A task names the agent at
    ``host`` and ``port``, with the ``key`` of that pair."""

    kind: ProbeKind
    seconds: float
    host: str = ""
    port: int = 0
    key: PairKey | None = None

    def fields(self) -> dict[str, str | float]:
        """As it is sent, and proven to be."""
        return {
            "kind": self.kind.value,
            "seconds": self.seconds,
            "host": self.host,
            "port": self.port,
            "as": "" if self.key is None else self.key.source,
        }


async def begin(reader: StreamReader, writer: StreamWriter, key: PairKey, request: Request) -> None:
    """Open a probe as prober; return once the responder has proved possession of the key."""
    theirs = _text(await receive(reader), "challenge")
    ours = secrets.token_hex(_CHALLENGE_BYTES)
    sealed = "" if request.key is None else _masked(key, theirs + ours, request.key.secret).hex()
    proof = _proof(key, "prober", theirs, ours, request)
    message = {"challenge": ours, "source": key.source, **request.fields(), "sealed": sealed}
    await send(writer, message | {"proof": proof})
    reply = await receive(reader)
    if "refused" in reply:
        raise ProbeError(f"The other agent refused: {_text(reply, 'refused')}")
    if not _same(_text(reply, "proof"), _proof(key, "responder", theirs, ours, request)):
        raise ProbeError("The responder does not have the key of this pair.")


async def accept(reader: StreamReader, writer: StreamWriter, token: str) -> Request:
    """Accept a probe as responder; return the request of a prober that has its key."""
    ours = secrets.token_hex(_CHALLENGE_BYTES)
    await send(writer, {"challenge": ours})
    try:
        message = await receive(reader)
        kind, seconds, port = _kind(message), _seconds(message), _port(message)
        theirs, key = _text(message, "challenge"), pair_key(token, _text(message, "source"))
        request = Request(kind, seconds, _text(message, "host"), port)
        if kind in (ProbeKind.TASK, ProbeKind.CROWD):
            secret = _masked(key, ours + theirs, _bytes(message, "sealed"))
            task_key = PairKey(_text(message, "as"), secret)
            request = Request(kind, seconds, _target(message), port, task_key)
        if not _same(_text(message, "proof"), _proof(key, "prober", ours, theirs, request)):
            raise ProbeError("the key is not that of this pair.")
    except ProbeError as error:
        await send(writer, {"refused": str(error)[:200]})
        raise
    await send(writer, {"proof": _proof(key, "responder", ours, theirs, request)})
    return request


def probe_task(message: dict[str, Any]) -> Request:
    """A task that the controllers dispatch, as bounded as what an agent asks of another."""
    kind = ProbeKind.CROWD if message.get("crowd") else ProbeKind.TASK
    key = PairKey(_text(message, "source"), _text(message, "pairKey").encode(errors="replace"))
    return Request(kind, _seconds(message), _target(message), _port(message), key)


async def send(writer: StreamWriter, message: dict[str, Any]) -> None:
    """One message."""
    body = json.dumps(message).encode()
    writer.write(len(body).to_bytes(2) + body)
    await writer.drain()


async def receive(reader: StreamReader) -> dict[str, Any]:
    """Receive one message; only that it is a JSON object is validated."""
    try:
        size = int.from_bytes(await reader.readexactly(2))
        if size > MESSAGE_BYTES_MAX:
            raise ProbeError(f"a message of {size} bytes; {MESSAGE_BYTES_MAX} are the most.")
        message = json.loads(await reader.readexactly(size))
    except IncompleteReadError as error:
        raise ProbeError("the connection ended within a message.") from error
    except (ValueError, RecursionError) as error:
        raise ProbeError("a message is no JSON.") from error
    if not isinstance(message, dict):
        raise ProbeError("a message is no JSON object.")
    return message


def number(message: dict[str, Any], key: str) -> float:
    """A finite number that is not negative."""
    value = message.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ProbeError(f"`{key}` is no number.")
    # A whole number may be too large to be a float at all.
    if not 0 <= value <= 1e18 or not math.isfinite(value):
        raise ProbeError(f"`{key}` is out of range.")
    return float(value)


def _kind(message: dict[str, Any]) -> ProbeKind:
    kind = _text(message, "kind")
    if kind not in [*ProbeKind]:
        raise ProbeError(f"`kind` is none of {', '.join(ProbeKind)}.")
    return ProbeKind(kind)


def _seconds(message: dict[str, Any]) -> float:
    seconds = number(message, "seconds")
    if not 0 < seconds <= SECONDS_MAX:
        raise ProbeError(f"`seconds` is not above 0 and at most {SECONDS_MAX:g}.")
    return seconds


def _port(message: dict[str, Any]) -> int:
    port = number(message, "port")
    if port > PORT_MAX or port != int(port):
        raise ProbeError("`port` is no port.")
    return int(port)


def _target(message: dict[str, Any]) -> str:
    """The host of a task: an address that a node may have."""
    host = _text(message, "host")
    if refusal := addresses.refusal(host):
        raise ProbeError(f"no agent is sent there: {refusal}.")
    return host


def _text(message: dict[str, Any], key: str) -> str:
    value = message.get(key)
    if not isinstance(value, str):
        raise ProbeError(f"`{key}` is no text.")
    return value


def _bytes(message: dict[str, Any], key: str) -> bytes:
    try:
        return bytes.fromhex(_text(message, key))
    except ValueError as error:
        raise ProbeError(f"`{key}` is no number in hexadecimal digits.") from error


def _proof(key: PairKey, side: str, responder: str, prober: str, request: Request) -> str:
    secret = "" if request.key is None else request.key.secret.hex()
    text = json.dumps([side, responder, prober, key.source, *request.fields().values(), secret])
    return hmac.new(key.secret, text.encode(), "sha256").hexdigest()


def _masked(key: PairKey, challenges: str, secret: bytes) -> bytes:
    """A secret as it is sent, or one that was sent: masked by what this connection alone has."""
    mask = hmac.digest(key.secret, f"mask {challenges}".encode(errors="replace"), "sha512")
    if len(secret) != len(mask):
        raise ProbeError("what is sealed is no key.")
    return bytes(one ^ other for one, other in zip(secret, mask, strict=True))


def _same(one: str, other: str) -> bool:
    # JSON can say halves of characters, which no encoding has.
    return hmac.compare_digest(one.encode(errors="replace"), other.encode())
