"""The one client to the API server: deadlines, retries that are safe, and the leader's gate.

Every write passes ``may_write`` right before it is sent, each retry again: a process that lost its
Lease stops between two requests, not at the end of a loop. Only what certainly had no effect is
sent again (429, 401, a connection never made). A write that may have happened is not repeated here
but raised as ``OutcomeUnknown``: the caller must read the object. Reads are retried freely.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import KW_ONLY, dataclass
from random import Random
from typing import Any, Self

import orjson

from railwright_kube import errors
from railwright_kube.backoff import Backoff
from railwright_kube.body_limits import (
    BODY_BYTES_MAX,
    BodyTooLargeError,
    bounded,
    split_lines,
)
from railwright_kube.connection import CredentialsError
from railwright_kube.lanes import Lane
from railwright_kube.metrics import ApiMetrics
from railwright_kube.transport import JSON, REVIEW, HttpRequest, NoAnswerError, Query, Transport

DEADLINE_S = 10.0
ATTEMPTS_MAX = 6
WRITES_MAX = 64
CLUSTER_WRITES_MAX = 8
READS_MAX = 32
"""Concurrent requests. A deadline counts from when a request leaves the queue; each caller bounds
its requests in flight. Reads have a lane of their own, as a webhook can delay writes. Delayed
writes do not block other namespaces (``lanes``) or cluster objects, such as the ledger.
"""
BACKOFF_S = Backoff(0.1, 2.0)

MERGE_PATCH = "application/merge-patch+json"

_READ_RETRIED = frozenset({429, 503, 504})
_WRITE_RETRIED = frozenset({429})

Lines = AsyncGenerator[bytes, None]
Decode = Callable[[bytes], Any]


@dataclass(frozen=True, slots=True)
class _Reply:
    status: int
    retry_after_s: float
    body: bytes
    token: str | None


@dataclass(eq=False, repr=False)
class Api:
    """Requests to the API server; use as ``async with Api(...) as api``.

    ``may_write`` answers at any time whether this process may change the cluster; ``clock`` is
    monotonic seconds; ``rng`` only spreads retries. Every method raises a ``RequestFailed``.
    """

    transport: Transport
    _: KW_ONLY
    may_write: Callable[[], bool]
    metrics: ApiMetrics
    clock: Callable[[], float]
    rng: Random

    def __post_init__(self) -> None:
        self._writing = Lane(WRITES_MAX)
        self._writing_cluster = Lane(CLUSTER_WRITES_MAX)
        self._reading = Lane(READS_MAX)
        self._opened = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._opened.enter_async_context(self.transport.opened())
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._opened.aclose()

    async def get(
        self,
        path: str,
        *,
        query: Query | None = None,
        deadline_s: float = DEADLINE_S,
        accept: str = JSON,
        decode: Decode = orjson.loads,
    ) -> Any:
        """The object or list at ``path``, in the format to ``accept``, as ``decode`` reads it.

        ``decode`` raises ValueError for what it cannot read.
        """
        return await self._run(
            HttpRequest("get", "GET", path, query, accept=accept), deadline_s, decode
        )

    async def create(self, path: str, body: object) -> Any:
        """POST a new object, a binding or another subresource."""
        return await self._write("create", "POST", path, body)

    async def review(self, path: str, body: object, *, deadline_s: float, decode: Decode) -> Any:
        """POST a review, such as a TokenReview. It changes nothing, so it is sent like a read,
        and by standbys too."""
        request = HttpRequest(REVIEW, "POST", path, body=orjson.dumps(body))
        return await self._run(request, deadline_s, decode)

    async def replace(self, path: str, body: object) -> Any:
        """PUT the whole object; its resourceVersion is the precondition."""
        return await self._write("replace", "PUT", path, body)

    async def patch(self, path: str, body: object) -> Any:
        """PATCH by RFC 7396; a resourceVersion in the body is a precondition."""
        return await self._write("patch", "PATCH", path, body, content_type=MERGE_PATCH)

    async def delete(self, path: str, body: object = None) -> Any:
        """DELETE; ``bodies.deletion`` carries the UID it is meant for."""
        return await self._write("delete", "DELETE", path, body)

    async def stream(self, path: str, *, query: Query, stall_s: float) -> Lines:
        """The lines of a watch until the server ends it.

        Raises Unreachable when nothing, not even a bookmark, came for ``stall_s``, and
        AnswerTooLarge for a line that is too long.
        """
        request = HttpRequest("watch", "GET", path, query)
        try:
            async with self.transport.exchange(request, total_s=None, stall_s=stall_s) as response:
                self.metrics.requests.labels("watch", str(response.status)).inc()
                if response.status != 200:
                    answer = _decoded(await bounded(response.body, BODY_BYTES_MAX))
                    if response.status == 401:
                        await self._renew_token(response.token)
                    raise errors.from_status(response.status, answer, where=str(request))
                async for line in split_lines(response.body):
                    yield line
        except BodyTooLargeError as error:
            raise errors.AnswerTooLarge(f"{request}: {error}") from error
        except NoAnswerError as error:
            raise errors.Unreachable(f"{request}: {error}") from error

    async def _write(
        self, verb: str, method: str, path: str, body: object, content_type: str = JSON
    ) -> Any:
        data = None if body is None else orjson.dumps(body)
        return await self._run(
            HttpRequest(verb, method, path, None, data, content_type), DEADLINE_S
        )

    async def _run(
        self, request: HttpRequest, deadline_s: float, decode: Decode = orjson.loads
    ) -> Any:
        async with self._lane(request).place():
            reply = await self._persist(request, deadline_s)
        try:
            return decode(reply.body)
        except ValueError as error:
            kind = errors.OutcomeUnknown if request.writes else errors.Unreachable
            raise kind(
                f"{request}: {reply.status} with a body that cannot be read: {error}"
            ) from error

    def _lane(self, request: HttpRequest) -> Lane:
        if not request.writes:
            return self._reading
        return self._writing if "/namespaces/" in request.path else self._writing_cluster

    async def _persist(self, request: HttpRequest, deadline_s: float) -> _Reply:
        """Attempts until an answer that is final, or until no attempt fits the deadline."""
        until_s = self.clock() + deadline_s
        renewed = False
        last: errors.RequestFailed = errors.Unreachable(f"{request}: no attempt in {deadline_s} s")
        for attempt in range(ATTEMPTS_MAX):
            wait_s = 0.0
            if attempt:
                wait_s = BACKOFF_S.delay_s(attempt - 1, self.rng)
            try:
                reply = await self._attempt(request, until_s - self.clock())
            except NoAnswerError as error:
                if error.sent and request.writes:
                    raise errors.OutcomeUnknown(f"{request}: {error}") from error
                last = errors.Unreachable(f"{request}: {error}")
            else:
                if reply.status < 400:
                    return reply
                last = _refusal(request, reply)
                if reply.status == 401 and not renewed:
                    renewed = True
                    await self._renew_token(reply.token)
                    wait_s = 0.0
                elif reply.status not in (_WRITE_RETRIED if request.writes else _READ_RETRIED):
                    raise last
                wait_s = max(wait_s, reply.retry_after_s)
                self.metrics.retries.labels(request.verb, str(reply.status)).inc()
            if self.clock() + wait_s >= until_s:
                break
            await asyncio.sleep(wait_s)
        raise last

    async def _attempt(self, request: HttpRequest, left_s: float) -> _Reply:
        """One request: through the gate, then on the wire."""
        if request.writes and not self.may_write():
            raise errors.NotLeader(f"{request}: this process does not hold the Lease")
        started_s = self.clock()
        code = "none"
        try:
            reply = await self._send(request, left_s)
            code = str(reply.status)
            return reply
        finally:
            self.metrics.requests.labels(request.verb, code).inc()
            self.metrics.request_s.labels(request.verb).observe(self.clock() - started_s)

    async def _send(self, request: HttpRequest, left_s: float) -> _Reply:
        total_s = max(0.001, left_s)
        try:
            async with self.transport.exchange(request, total_s=total_s, stall_s=None) as response:
                body = await bounded(response.body, BODY_BYTES_MAX)
                return _Reply(response.status, response.retry_after_s, body, response.token)
        except BodyTooLargeError as error:
            if not request.writes:
                raise errors.AnswerTooLarge(f"{request}: {error}") from error
            raise NoAnswerError(str(error), sent=True) from error

    async def _renew_token(self, refused: str | None) -> None:
        """Raises Unreachable when the credentials cannot be read."""
        try:
            await self.transport.renew_token(refused)
        except CredentialsError as error:
            raise errors.Unreachable(f"credentials not read: {error}") from error


def _refusal(request: HttpRequest, reply: _Reply) -> errors.RequestFailed:
    """The error of a status of 400 or more. A server error after a write proves nothing."""
    refusal = errors.from_status(reply.status, _decoded(reply.body), where=str(request))
    if request.writes and reply.status >= 500:
        return errors.OutcomeUnknown(str(refusal))
    return refusal


def _decoded(body: bytes) -> object:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return {"message": body[:200].decode(errors="replace")}
