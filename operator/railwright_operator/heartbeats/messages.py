"""Heads of requests and bytes of answers: the part of HTTP/1.1 that launchers and agents speak.

One POST with a Content-Length at a time. Everything else is refused and its connection closed, so
no two readers can disagree about where a message ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus

import orjson

from railwright_operator.heartbeats import refusals
from railwright_operator.heartbeats.refusals import RefusedError

HEAD_BYTES_MAX = 16 * 1024
"""Twice the longest token that is read."""

RETRY_AFTER_S = 1
OK_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
LENGTH_DIGITS_MAX = 9
SINGLE = frozenset({"content-length", "authorization", "content-encoding"})


@dataclass(frozen=True, slots=True)
class Head:
    """What the head of a request says: the path, the bytes that follow, the bearer token."""

    path: str
    length: int
    token: str
    keeps_open: bool = True


def read_head(data: bytes) -> Head:
    """The head of a request, without the empty line at its end. Raises RefusedError."""
    request, *lines = data.decode("latin-1").split("\r\n")
    method, _, rest = request.partition(" ")
    path, _, version = rest.partition(" ")
    if version not in ("HTTP/1.1", "HTTP/1.0"):
        raise RefusedError(refusals.MALFORMED, "expected HTTP/1.1")
    if method != "POST":
        raise RefusedError(refusals.NOT_ALLOWED, "expected POST")
    fields: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        name = name.lower()
        twice = name in SINGLE and name in fields
        if not colon or not name or name != name.strip() or "\n" in value or twice:
            raise RefusedError(refusals.MALFORMED, "a header field cannot be read")
        fields[name] = value.strip()
    if "transfer-encoding" in fields or "content-length" not in fields:
        raise RefusedError(refusals.LENGTH_REQUIRED, "expected a Content-Length")
    if fields.get("content-encoding", "identity") != "identity":
        raise RefusedError(refusals.UNSUPPORTED, "Content-Encoding is not supported")
    length = fields["content-length"]
    if not length.isascii() or not length.isdecimal() or len(length) > LENGTH_DIGITS_MAX:
        raise RefusedError(refusals.MALFORMED, "Content-Length is not a number")
    keeps_open = version == "HTTP/1.1" and fields.get("connection", "").lower() != "close"
    return Head(path, int(length), _bearer_token(fields.get("authorization", "")), keeps_open)


@dataclass(frozen=True, slots=True)
class Answer:
    """JSON, and whether the connection is closed after it."""

    status: int
    body: bytes
    closes: bool = False

    def encode(self) -> bytes:
        """Head and body."""
        size = len(self.body)
        if self.status == HTTPStatus.OK and not self.closes:
            return b"%s%d\r\n\r\n%s" % (OK_HEAD, size, self.body)
        more = "Connection: close\r\n" if self.closes else ""
        if self.status in (refusals.LATER, refusals.TOO_EARLY):
            more += f"Retry-After: {RETRY_AFTER_S}\r\n"
        first = f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}\r\n"
        rest = f"Content-Type: application/json\r\n{more}Content-Length: {size}\r\n\r\n"
        return (first + rest).encode() + self.body


def refusal(error: RefusedError) -> Answer:
    """The answer to a refused message. After LATER a Service may choose another operator."""
    body = orjson.dumps({"error": error.reason})
    return Answer(error.status, body, closes=error.status == refusals.LATER)


def _bearer_token(authorization: str) -> str:
    """The token in a header field; empty where there is none."""
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
