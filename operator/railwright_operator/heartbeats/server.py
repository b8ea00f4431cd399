"""The messages of launchers to the heartbeat server: their paths, and their authentication.

Launchers send ``railwright.protocol`` messages, one POST each. A launcher is verified by a token
that is bound to the live pod of its rank and attempt.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar

from railwright import profile, protocol
from railwright_kube.errors import RequestFailed
from railwright_kube.tokens import Bearer
from railwright_operator.heartbeats import decoding
from railwright_operator.heartbeats.sessions import Sessions
from railwright_process.connections import Route
from railwright_process.messages import RefusedError, Response

logger = logging.getLogger(__name__)

COMMIT_DEADLINE_S = 8.0
PodUidOf = Callable[[str, int, int], str | None]
"""The UID of the live pod of (job UID, attempt, node rank); None when there is none."""

OnCommit = Callable[[str, str, int, int], Awaitable[None]]
"""Returns once (job UID, group, attempt, step) is durably recorded; raises RequestFailed if it is
not."""

Body = TypeVar("Body", protocol.Register, protocol.Heartbeat, protocol.Commit, profile.Handover)

decode_register = decoding.decoder(protocol.Register)
decode_heartbeat = decoding.decoder(protocol.Heartbeat)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launchers:
    """The messages of launchers. ``audience_of`` names the audience of tokens by the job's UID."""

    sessions: Sessions
    audience_of: Callable[[str], str]
    pod_uid_of: PodUidOf
    on_commit: OnCommit

    def routes(self) -> Mapping[str, Route]:
        """Map each path to the route for its messages."""

        def at_once(
            decode: Callable[[bytes], Body],
            handle: Callable[[Body, str], Any],
            encode: Callable[[Any], Response] = _encoded,
        ) -> Route:
            def act(bearer: Bearer, body: bytes) -> Response:
                return encode(handle(self._read(decode, bearer, body), bearer.pod_uid))

            return Route(protocol.MESSAGE_BYTES_MAX, _admit_any, act)

        def later(kind: type[Body], handle: Callable[[Body, str], Awaitable[Any]]) -> Route:
            async def act(bearer: Bearer, body: bytes) -> Response:
                decode = functools.partial(protocol.decode, kind)
                return _encoded(await handle(self._read(decode, bearer, body), bearer.pod_uid))

            return Route(protocol.MESSAGE_BYTES_MAX, _admit_any, act)

        return {
            "/v1/register": at_once(decode_register, self.sessions.register),
            "/v1/beat": at_once(decode_heartbeat, self.sessions.heartbeat, _encoded_heartbeat),
            "/v1/profile": later(profile.Handover, self.sessions.profiled),
            "/v1/commit": later(protocol.Commit, self._commit),
        }

    async def _commit(self, message: protocol.Commit, pod_uid: str) -> protocol.CommitAnswer:
        """Grant a commit once its step is durable, unless the attempt was revoked meanwhile."""
        member, recorded = message.member, False
        group = self.sessions.claim_commit(message, pod_uid)
        try:
            async with asyncio.timeout(COMMIT_DEADLINE_S):
                await self.on_commit(member.job_uid, group, member.attempt, message.step)
            recorded = True
        except (TimeoutError, RequestFailed) as error:
            logger.warning(
                "commit not recorded",
                extra={"job_uid": member.job_uid, "step": message.step, "error": repr(error)},
            )
            raise RefusedError(
                "the step could not be recorded now", HTTPStatus.SERVICE_UNAVAILABLE
            ) from error
        finally:
            self.sessions.settle_commit(message, recorded=recorded)
        return protocol.CommitAnswer(granted=True)

    def _read(self, decode: Callable[[bytes], Body], bearer: Bearer, body: bytes) -> Body:
        """Decode a message and verify that its sender is the live pod of its rank. Raises
        RefusedError."""
        try:
            message = decode(body)
        except protocol.ProtocolError as error:
            raise RefusedError(str(error)) from error
        member = message.member
        self.sessions.admit(member)
        if self.audience_of(member.job_uid) not in bearer.audiences:
            raise RefusedError("the token is not for this job", HTTPStatus.FORBIDDEN)
        lives = self.pod_uid_of(member.job_uid, member.attempt, member.node_rank)
        if bearer.pod_uid != lives:
            raise RefusedError("the token is not of the pod of this rank", HTTPStatus.FORBIDDEN)
        return message


def _admit_any(bearer: Bearer) -> None:
    """Admit any bearer: which pod may send a launcher's message depends on the message."""


def _encoded(message: Any) -> Response:
    return Response(200, protocol.encode(message))


_encoded_heartbeat = functools.lru_cache(maxsize=16)(_encoded)
"""Nearly all responses to heartbeats are equal."""
