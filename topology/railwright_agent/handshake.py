"""How two agents begin a probe: both prove that they know the token, which itself is never sent.

Messages are JSON objects behind their length in two bytes. The responder speaks first, with a
challenge; the prober answers with one of its own, with what it asks for, and with a keyed hash of
all that; the responder's hash, or a refusal, ends it. A recorded proof is of no use, as the next
challenge differs. What follows is not encrypted: it carries nothing but filler.
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

MESSAGE_BYTES_MAX = 1024
SECONDS_MAX = 10.0
HANDSHAKE_S = 5.0
GRACE_S = 5.0
"""So long a connection may last beyond what was asked for."""
ECHO_BYTES = 64
PORT_MAX = 65535
TOKEN_BYTES_MIN = 16
_CHALLENGE_BYTES = 16


class ProbeError(Exception):
    """Why there is no measurement, as a sentence."""


class Kind(enum.StrEnum):
    """What is measured, and by whom: on an errand an agent measures another one and tells. In a
    crowd many are on errands at once, and bandwidth alone counts."""

    LATENCY = "latency"
    BANDWIDTH = "bandwidth"
    ERRAND = "errand"
    CROWD = "crowd"


@dataclass(frozen=True, slots=True)
class Request:
    """One connection of a probe, and for how long it may last. An errand leads to the agent at
    ``host`` and ``port``."""

    kind: Kind
    seconds: float
    host: str = ""
    port: int = 0

    def told(self) -> dict[str, str | float]:
        """As it is sent, and proven to be."""
        return {
            "kind": self.kind.value,
            "seconds": self.seconds,
            "host": self.host,
            "port": self.port,
        }


async def ask(reader: StreamReader, writer: StreamWriter, token: bytes, request: Request) -> None:
    """The prober's part; returns once the responder has proved that it knows the token."""
    theirs = _text(await receive(reader), "challenge")
    ours = secrets.token_hex(_CHALLENGE_BYTES)
    proof = _proof(token, "prober", theirs, ours, request)
    await send(writer, {"challenge": ours, **request.told(), "proof": proof})
    answer = await receive(reader)
    if "refused" in answer:
        raise ProbeError(f"The other agent refused: {_text(answer, 'refused')}")
    if not _same(_text(answer, "proof"), _proof(token, "responder", theirs, ours, request)):
        raise ProbeError("What answered does not know the token.")


async def answer(reader: StreamReader, writer: StreamWriter, token: bytes) -> Request:
    """The responder's part; returns what is asked for by whoever knows the token."""
    ours = secrets.token_hex(_CHALLENGE_BYTES)
    await send(writer, {"challenge": ours})
    try:
        asked = await receive(reader)
        request = Request(_kind(asked), _seconds(asked), _text(asked, "host"), _port(asked))
        theirs = _text(asked, "challenge")
        if not _same(_text(asked, "proof"), _proof(token, "prober", ours, theirs, request)):
            raise ProbeError("the token is not the one known here.")
    except ProbeError as error:
        await send(writer, {"refused": str(error)[:200]})
        raise
    await send(writer, {"proof": _proof(token, "responder", ours, theirs, request)})
    return request


def errand(said: dict[str, Any]) -> Request:
    """What the operator sends an agent on, as bounded as what an agent asks of another."""
    return Request(Kind.ERRAND, _seconds(said), _text(said, "host"), _port(said))


async def send(writer: StreamWriter, message: dict[str, Any]) -> None:
    """One message."""
    body = json.dumps(message).encode()
    writer.write(len(body).to_bytes(2) + body)
    await writer.drain()


async def receive(reader: StreamReader) -> dict[str, Any]:
    """One message, of which nothing is believed but that it is a JSON object."""
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


def _kind(message: dict[str, Any]) -> Kind:
    kind = _text(message, "kind")
    if kind not in [*Kind]:
        raise ProbeError(f"`kind` is none of {', '.join(Kind)}.")
    return Kind(kind)


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


def _text(message: dict[str, Any], key: str) -> str:
    value = message.get(key)
    if not isinstance(value, str):
        raise ProbeError(f"`{key}` is no text.")
    return value


def _proof(token: bytes, who: str, responder: str, prober: str, request: Request) -> str:
    said = json.dumps([who, responder, prober, *request.told().values()])
    return hmac.new(token, said.encode(), "sha256").hexdigest()


def _same(one: str, other: str) -> bool:
    # JSON can say halves of characters, which no encoding has.
    return hmac.compare_digest(one.encode(errors="replace"), other.encode())
