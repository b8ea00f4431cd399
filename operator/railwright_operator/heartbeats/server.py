"""The HTTP server that launchers and agents speak to. Launchers send ``railwright.wire`` messages,
one POST each; what agents send is in ``agents``.

Everything that comes in is hostile until shown otherwise: bodies are read up to 16 KiB within a
deadline and never decompressed, a connection that has not sent a whole head in time is closed, and
who speaks is decided by a token bound to the pod that lives now at this rank of this attempt. Only
the last of these costs a request, and only for attempts that are expected.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from aiohttp import web

from railwright import profile, wire
from railwright_operator.heartbeats import agents, messages, refusals
from railwright_operator.heartbeats.agents import Agents
from railwright_operator.heartbeats.refusals import RefusedError
from railwright_operator.heartbeats.sessions import Sessions
from railwright_operator.heartbeats.tokens import Tokens
from railwright_operator.kube.errors import RequestFailed
from railwright_operator.metrics import HeartbeatMetrics

logger = logging.getLogger(__name__)

HEAD_DEADLINE_S = 15.0
COMMIT_DEADLINE_S = 8.0
AT_ONCE_MAX = 2048

PodUidOf = Callable[[str, int, int], str | None]
"""The UID of the live pod of (job UID, attempt, node rank); None when there is none."""

OnCommit = Callable[[str, int, int], Awaitable[None]]
"""Returns once (job UID, attempt, step) is durably recorded; raises RequestFailed if it is not."""

Answer = wire.Registered | wire.BeatAnswer | wire.CommitAnswer
Spoken = wire.Register | wire.Beat | wire.Commit | profile.Handover
Kind = TypeVar("Kind", wire.Register, wire.Beat, wire.Commit, profile.Handover)


class HeartbeatServer:
    """Listens for both. ``audience_of`` names the audience of a job's tokens by its UID."""

    def __init__(
        self,
        sessions: Sessions,
        tokens: Tokens,
        *,
        audience_of: Callable[[str], str],
        pod_uid_of: PodUidOf,
        on_commit: OnCommit,
        is_leader: Callable[[], bool],
        metrics: HeartbeatMetrics,
        agents: Agents,
    ) -> None:
        self._sessions = sessions
        self._tokens = tokens
        self._audience_of = audience_of
        self._pod_uid_of = pod_uid_of
        self._on_commit = on_commit
        self._is_leader = is_leader
        self._metrics = metrics
        self._agents = agents
        self._at_once = 0
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; the real address, which matters for port 0. Raises OSError when it is taken."""
        assert self._runner is None, "started twice"
        application = web.Application()
        application.router.add_post("/v1/register", self._register)
        application.router.add_post("/v1/beat", self._beat)
        application.router.add_post("/v1/commit", self._commit)
        application.router.add_post(agents.PATH, self._agents.inside)
        application.router.add_post(agents.ERRANDS_PATH, self._agents.errand)
        application.router.add_post("/v1/profile", self._profile)
        self._runner = web.AppRunner(
            application,
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=HEAD_DEADLINE_S,
            lingering_time=1.0,
            shutdown_timeout=1.0,
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port, backlog=1024).start()
        address = self._runner.addresses[0]
        return str(address[0]), int(address[1])

    async def stop(self) -> None:
        """Close the port and every connection."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _register(self, request: web.Request) -> web.Response:
        async def act(message: wire.Register, pod_uid: str) -> Answer:
            return self._sessions.register(message, pod_uid)

        return await self._handle(request, wire.Register, act)

    async def _beat(self, request: web.Request) -> web.Response:
        async def act(message: wire.Beat, pod_uid: str) -> Answer:
            return self._sessions.beat(message, pod_uid)

        return await self._handle(request, wire.Beat, act)

    async def _commit(self, request: web.Request) -> web.Response:
        return await self._handle(request, wire.Commit, self._record)

    async def _profile(self, request: web.Request) -> web.Response:
        async def act(message: profile.Handover, pod_uid: str) -> Answer:
            return self._sessions.profiled(message, pod_uid)

        return await self._handle(request, profile.Handover, act)

    async def _record(self, message: wire.Commit, pod_uid: str) -> Answer:
        """Grant a commit once its step is durable, unless the attempt was revoked meanwhile."""
        member, recorded = message.member, False
        self._sessions.claim_commit(message, pod_uid)
        try:
            async with asyncio.timeout(COMMIT_DEADLINE_S):
                await self._on_commit(member.job_uid, member.attempt, message.step)
            recorded = True
        except (TimeoutError, RequestFailed) as error:
            logger.warning(
                "commit not recorded",
                extra={"job_uid": member.job_uid, "step": message.step, "error": repr(error)},
            )
            raise RefusedError(refusals.LATER, "the step could not be recorded now") from error
        finally:
            self._sessions.settle_commit(message, recorded=recorded)
        return wire.CommitAnswer(granted=True)

    async def _handle(
        self,
        request: web.Request,
        kind: type[Kind],
        act: Callable[[Kind, str], Awaitable[Answer]],
    ) -> web.Response:
        """Answer, and count how it ended."""
        status = 500
        self._at_once += 1
        try:
            response = await self._respond(request, kind, act)
            status = response.status
            return response
        finally:
            self._at_once -= 1
            self._metrics.requests.labels(request.path, str(status)).inc()

    async def _respond(
        self,
        request: web.Request,
        kind: type[Kind],
        act: Callable[[Kind, str], Awaitable[Answer]],
    ) -> web.Response:
        """Read, decode, identify, act."""
        try:
            if self._at_once > AT_ONCE_MAX:
                raise RefusedError(refusals.LATER, "too many messages at once")
            if not self._is_leader():
                raise RefusedError(refusals.LATER, "this operator is not the leader")
            message = wire.decode(kind, await messages.body(request, wire.MESSAGE_BYTES_MAX))
            pod_uid = await self._identify(request, message.member)
            return messages.answer(200, wire.encode(await act(message, pod_uid)))
        except wire.WireError as error:
            return _refused(kind, RefusedError(refusals.MALFORMED, str(error)))
        except RefusedError as error:
            return _refused(kind, error)

    async def _identify(self, request: web.Request, member: wire.Member) -> str:
        """The UID of the pod that speaks, which is the one that lives at this rank now."""
        self._sessions.admit(member)
        bearer = await self._tokens.bearer(
            messages.bearer_token(request),
            audience=self._audience_of(member.job_uid),
            peer=request.remote or "",
        )
        shown = bearer.pod_uid
        if shown != self._pod_uid_of(member.job_uid, member.attempt, member.node_rank):
            raise RefusedError(refusals.FORBIDDEN, "the token is not of the pod of this rank")
        return shown


def _refused(kind: type[Spoken], error: RefusedError) -> web.Response:
    """The refusal; one that means "stop" is the answer that this kind of message expects."""
    if error.status != refusals.STOP:
        return messages.refusal(error)
    if kind is wire.Register:
        stop = wire.encode(wire.Registered(wire.Order.STOP))
    elif kind in (wire.Beat, profile.Handover):
        stop = wire.encode(wire.BeatAnswer(wire.Order.STOP, error.reason))
    else:
        stop = wire.encode(wire.CommitAnswer(granted=False, reason=error.reason))
    return messages.answer(error.status, stop)
