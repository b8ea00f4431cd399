"""Requests to the API server of a context of the kubeconfig, with the user's own rights.

The `kubernetes` package finds the server and authenticates. Responses are decoded to only the
fields that a command shows: a list of 10,000 jobs takes as long as in `kubectl get`.
"""

from __future__ import annotations

import functools
import io
import re
import sys
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import datetime
from email.utils import parsedate_to_datetime
from multiprocessing.pool import ThreadPool
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct
from urllib3 import HTTPResponse
from urllib3.exceptions import HTTPError

from kubernetes import client
from railwright_cli import interruptible, kubeconfig
from railwright_cli.errors import AccessDeniedError, RequestError, UsageError
from railwright_cli.progress import shown_progress

Read = TypeVar("Read")
Received = TypeVar("Received")
Query = Mapping[str, str | int]

PAGE_OBJECTS = 500
CONNECT_DEADLINE_S = 10
DEADLINE_S = 60
RECEIVED_BYTES_MAX = 1 << 16
JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"

GROUP_PARTS = 4
"""The path of a group, such as `/apis/apps/v1`, has fewer slashes than that of an object."""

CORE = "/api/v1"
PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


NAME = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?")
OK, UNAUTHORIZED, FORBIDDEN, NOT_FOUND, EXPIRED = 200, 401, 403, 404, 410
TOO_MANY, UNAVAILABLE = 429, 503

REFUSALS_MAX = 10
"""How often a request is repeated that the API server has no capacity for."""
RETRY_AFTER_S_MAX = 10.0


class _Details(Struct):
    name: str = ""


class _Failure(Struct):
    message: str = ""
    reason: str = ""
    details: _Details = msgspec.field(default_factory=_Details)


class _ListMetadata(Struct):
    following: str = msgspec.field(default="", name="continue")
    remaining: int = msgspec.field(default=0, name="remainingItemCount")


class _PageMetadata(Struct):
    metadata: _ListMetadata


class _Page(_PageMetadata, Generic[Read]):
    items: list[Read] | None = None


class _Event(Struct):
    type: str
    object: msgspec.Raw


class ApiServer:
    """``context`` and ``namespace`` are those of the kubeconfig if empty.

    Each method raises RequestError.
    """

    def __init__(self, context: str = "", namespace: str = "") -> None:
        self._given = context
        self.context = kubeconfig.read(context)
        self.namespace = valid_name(namespace or self.context.namespace)

    def get(self, path: str, kind: type[Read]) -> Read:
        """An object, decoded as this type."""
        return _decoded(self._body("GET", path), kind)

    def time(self) -> datetime:
        """The time of the API server, which a refusal has too."""
        timeouts = (CONNECT_DEADLINE_S, DEADLINE_S)
        with closing(self._respond("GET", "/version", {}, None, timeouts)) as response:
            if (date := response.headers.get("Date")) is None:
                raise RequestError(0, "the response of the API server has no time")
            return parsedate_to_datetime(date)

    def find(self, path: str, kind: type[Read]) -> Read | None:
        """The same; None if there is no such object."""
        try:
            return self.get(path, kind)
        except RequestError as error:
            if not error.is_absence:
                raise
            return None

    def items(self, path: str, kind: type[Read], query: Query | None = None) -> list[Read]:
        """All objects of a list, page by page; the next page is requested while one is decoded. The
        progress is shown on a terminal: the ``query`` is a selector, of which the API server does
        not say how much it selects. A list that takes longer than the API server keeps its state is
        read again as one page."""
        found: list[Read] = []
        bound: int | None = None
        # Its thread ends with the process, also if the API server is silent.
        with shown_progress(f"reading {path.rpartition('/')[2]}") as show, ThreadPool(1) as ahead:
            paged: Query = {**(query or {}), "limit": PAGE_OBJECTS}
            body = self._body("GET", path, paged)
            while True:
                listed = _decoded(body, _PageMetadata).metadata
                if listed.following:
                    request = "GET", path, {**paged, "continue": listed.following}
                    following = ahead.apply_async(self._body, request)
                page: _Page[Read] = _decoded(body, _Page[kind])  # type: ignore[valid-type]
                found += page.items or ()
                if not listed.following:
                    return found
                total = len(found) + listed.remaining if listed.remaining else bound
                is_shown = show(len(found), total, at_most=not listed.remaining)
                if is_shown and query and bound is None:
                    bound = self._count(path)
                try:
                    body = interruptible.wait(following)
                except RequestError as error:
                    if error.code != EXPIRED:
                        raise
                    found, body = [], self._body("GET", path, {**(query or {}), "limit": 0})

    def _count(self, path: str) -> int:
        """How many objects there are, whatever a selector selects; 0 if that is unknown."""
        try:
            page = _decoded(self._body("GET", path, {"limit": 1}), _Page[msgspec.Raw])
        except RequestError:
            return 0
        return len(page.items or ()) + page.metadata.remaining

    def create(self, path: str, body: Any, *, is_dry_run: bool = False) -> Any:
        """The created object, as the API server completed it."""
        query = {"dryRun": "All"} if is_dry_run else {}
        query["fieldValidation"] = "Strict"
        return _decoded(self._body("POST", path, query, body=body), dict)

    def merge(self, path: str, patch: Any) -> None:
        """Change an object by a merge patch."""
        self._body("PATCH", path, body=patch, content_type=MERGE_PATCH)

    def delete(self, path: str, *, uid: str | None = None) -> None:
        """Delete an object, and then what it owns; with a ``uid`` no other one of its name."""
        options: dict[str, Any] = {"propagationPolicy": "Background"}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        self._body("DELETE", path, body=options)

    def lines(
        self, path: str, query: Query, *, silence_s: float, part_bytes: int = sys.maxsize
    ) -> Iterator[bytes]:
        """The lines of a stream that is open then, with their ends, as they arrive; the last one
        also if it has none. A line that has ``part_bytes`` or more before it ends is in several
        parts. A silence of so many seconds is an error."""
        response = self._open("GET", path, query, deadline_s=silence_s)
        return self._lines(response, part_bytes)

    def _lines(self, opened: HTTPResponse, part_bytes: int) -> Iterator[bytes]:
        left = bytearray()
        with closing(opened) as response:
            receive = functools.partial(response.read1, RECEIVED_BYTES_MAX, decode_content=True)
            while received := _received(receive):
                for each in io.BytesIO(received):
                    left += each
                    if each.endswith(b"\n") or len(left) >= part_bytes:
                        yield bytes(left)
                        left.clear()
        if left:
            yield bytes(left)

    def changes(
        self, path: str, name: str, kind: type[Read], *, silence_s: int
    ) -> Iterator[Read | None]:
        """An object as it is now, and after each change; None if it was deleted. Ends after so
        many seconds; the caller goes on."""
        query: Query = {
            "watch": 1,
            "fieldSelector": f"metadata.name={name}",
            "timeoutSeconds": silence_s,
        }
        for line in self.lines(path, query, silence_s=silence_s + CONNECT_DEADLINE_S):
            event = _decoded(line, _Event)
            if event.type == "ERROR":
                raise RequestError(EXPIRED, _decoded(event.object, _Failure).message)
            yield None if event.type == "DELETED" else _decoded(event.object, kind)

    def _body(self, method: str, path: str, query: Query | None = None, **request: Any) -> bytes:
        with closing(self._open(method, path, query, **request)) as response:
            return _received(lambda: response.read(decode_content=True))

    def _open(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        *,
        body: Any = None,
        content_type: str = JSON,
        deadline_s: float = DEADLINE_S,
    ) -> HTTPResponse:
        headers = {"Accept": f"{JSON}, */*", "Accept-Encoding": "gzip"}
        if body is not None:
            headers["Content-Type"] = content_type
        given = {name: value for name, value in (query or {}).items() if value != ""}
        url = f"{path}?{urllib.parse.urlencode(given)}" if given else path
        timeouts, is_renewed, refusals = (CONNECT_DEADLINE_S, deadline_s), False, 0
        while True:
            response = self._respond(method, url, headers, body, timeouts)
            if 200 <= response.status <= 299:
                return response
            with closing(response):
                pause_s = _retry_after_s(response)
                if response.status == UNAUTHORIZED and not is_renewed:
                    # A plugin or a file may have another token by now.
                    self.context, is_renewed = kubeconfig.read(self._given), True
                elif pause_s is not None and refusals < REFUSALS_MAX:
                    refusals += 1
                    time.sleep(pause_s)
                else:
                    raise _error(response, path)

    def _respond(
        self, method: str, url: str, headers: Mapping[str, str], body: Any, timeouts: Any
    ) -> HTTPResponse:
        its = self.context.client
        # Credentials are not sent in the clear, as in kubectl.
        auth = ["BearerToken"] if str(its.configuration.host).startswith("https:") else []
        request = its.param_serialize(
            method, url, header_params=dict(headers), body=body, auth_settings=auth
        )
        response: HTTPResponse = _received(
            lambda: its.call_api(*request, _request_timeout=timeouts).response
        )
        return response


def valid_name(name: str) -> str:
    """The name. It becomes a part of a path: what is no name of an object could be another path.
    Raises UsageError."""
    if not NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no name: expected a-z, 0-9, - and .")
    return name


def _received(receive: Callable[[], Received]) -> Received:
    """What is received. Raises RequestError if the connection breaks, or is silent for too long."""
    try:
        return receive()
    except (HTTPError, client.ApiException) as error:
        # The latter for a failed TLS handshake.
        raise RequestError(0, f"no response from the API server: {error}") from error
    except ValueError:
        # The message of the library has the header.
        message = "the token of the kubeconfig has a character that no header may have"
        raise RequestError(UNAUTHORIZED, message) from None


def _retry_after_s(response: HTTPResponse) -> float | None:
    """When to repeat a request that the API server had no capacity for; None if it is no such."""
    after = response.headers.get("Retry-After", "")
    if response.status not in (TOO_MANY, UNAVAILABLE) or not after.isdecimal():
        return None
    return min(float(after), RETRY_AFTER_S_MAX)


def _decoded(body: bytes | msgspec.Raw, kind: type[Read]) -> Read:
    """What is no JSON is not from the API server, or was cut off: a later response may be whole.
    What has other types than expected stays so."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        code = OK if isinstance(error, msgspec.ValidationError) else 0
        message = f"the API server sent something else than expected: {error}"
        raise RequestError(code, message) from error


def _error(response: HTTPResponse, path: str) -> RequestError:
    """An object is absent if a 404 names it: what is between the API server and its clients may
    respond 404 to anything."""
    body = _received(lambda: response.read(decode_content=True))
    try:
        failure = msgspec.json.decode(body, type=_Failure)
    except msgspec.DecodeError:
        failure = _Failure(body.decode(errors="replace").strip()[:500])
    message, code = failure.message, response.status
    is_of_group = path.count("/") < GROUP_PARTS
    named = failure.details.name
    is_absence = code == NOT_FOUND and (is_of_group or bool(named and named in path.split("/")))
    if code == NOT_FOUND and ("page not found" in message or "the server could" in message):
        message = "the cluster does not have this kind: is Railwright installed?"
    message = message or f"the API server responded {code}"
    kind = AccessDeniedError if code == FORBIDDEN else RequestError
    return kind(code, message, is_absence=is_absence)
