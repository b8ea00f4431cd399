"""The part of HTTP/1.1 that launchers and agents use: request heads, responses, refusals.

One POST with a Content-Length at a time. Everything else is refused and its connection closed, so
two readers cannot differ on where a message ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus

import orjson

HEAD_BYTES_MAX = 16 * 1024
"""Twice the longest token that is read."""

RETRY_AFTER_S = 1
OK_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
REQUEST_LINE = re.compile(r"([^ ]*) ([^ ]*) HTTP/1\.([01])")
FIELD = re.compile(r"([!#$%&'*+.^_`|~\w-]+):([^\r\n]*)", re.ASCII)
LENGTH = re.compile(r"[0-9]{1,9}")
ELSEWHERE = frozenset({HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TEMPORARY_REDIRECT})
SINGLE = frozenset({"content-length", "authorization", "content-encoding"})

STATUSES = (
    HTTPStatus.OK,
    HTTPStatus.TEMPORARY_REDIRECT,
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.METHOD_NOT_ALLOWED,
    HTTPStatus.CONFLICT,
    HTTPStatus.LENGTH_REQUIRED,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    HTTPStatus.TOO_EARLY,
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    HTTPStatus.INTERNAL_SERVER_ERROR,
    HTTPStatus.SERVICE_UNAVAILABLE,
)
"""Those of the messages that are counted."""


class RefusedError(Exception):
    """A refused message: its sender acts on ``status``, by default that it must not be sent again,
    and logs ``reason``. ``location`` is the URL that accepts it, for TEMPORARY_REDIRECT."""

    def __init__(
        self, reason: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST, *, location: str = ""
    ) -> None:
        super().__init__(f"{status}: {reason}")
        self.status = status
        self.reason = reason
        self.location = location


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a request: the path, the number of bytes that follow, the bearer token."""

    path: str
    length: int
    token: str
    keeps_open: bool = True


def read_head(data: bytes) -> Head:
    """Read the head of a request, without the empty line at its end. Raises RefusedError."""
    first, *lines = data.decode("latin-1").split("\r\n")
    request = REQUEST_LINE.fullmatch(first)
    if request is None:
        raise RefusedError("expected HTTP/1.1")
    if request[1] != "POST":
        raise RefusedError("expected POST", HTTPStatus.METHOD_NOT_ALLOWED)
    fields = _read_fields(lines)
    if "transfer-encoding" in fields or "content-length" not in fields:
        raise RefusedError("expected a Content-Length", HTTPStatus.LENGTH_REQUIRED)
    if fields.get("content-encoding", "identity") != "identity":
        raise RefusedError("Content-Encoding is not supported", HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
    length = fields["content-length"]
    if not LENGTH.fullmatch(length):
        raise RefusedError("Content-Length is not a number")
    scheme, _, token = fields.get("authorization", "").partition(" ")
    keeps_open = request[3] == "1" and fields.get("connection", "").lower() != "close"
    return Head(
        request[2], int(length), token.strip() if scheme.lower() == "bearer" else "", keeps_open
    )


def _read_fields(lines: Iterable[str]) -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in lines:
        field = FIELD.fullmatch(line)
        if field is None or field[1].lower() in SINGLE & fields.keys():
            raise RefusedError("a header field cannot be read")
        fields[field[1].lower()] = field[2].strip()
    return fields


@dataclass(frozen=True, slots=True)
class Response:
    """A JSON response, whether it closes the connection, and the URL to which it redirects."""

    status: int
    body: bytes
    closes: bool = False
    location: str = ""

    def encode(self) -> bytes:
        """Head and body."""
        size = len(self.body)
        if self.status == HTTPStatus.OK and not self.closes:
            return b"%s%d\r\n\r\n%s" % (OK_HEAD, size, self.body)
        more = "Connection: close\r\n" if self.closes else ""
        if self.status in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_EARLY):
            more += f"Retry-After: {RETRY_AFTER_S}\r\n"
        if self.location:
            more += f"Location: {self.location}\r\n"
        first = f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}\r\n"
        rest = f"Content-Type: application/json\r\n{more}Content-Length: {size}\r\n\r\n"
        return (first + rest).encode() + self.body


def refusal(error: RefusedError) -> Response:
    """The response to a refused message. What another replica may accept needs a new connection."""
    body = orjson.dumps({"error": error.reason})
    return Response(error.status, body, closes=error.status in ELSEWHERE, location=error.location)
