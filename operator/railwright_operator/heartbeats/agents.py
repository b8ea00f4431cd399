"""What agents tell of the inside of their nodes, and the errands that they ask for, over the server
that launchers speak to.

An agent's token is that of its service account and good for us alone; the API server says which
node its pod is bound to. So a pod can speak for its own node only, whatever a body says, and who is
not of that account for none. Who speaks is known before a body is read.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from aiohttp import web

from railwright_api import names
from railwright_operator.heartbeats import errands, messages, refusals
from railwright_operator.heartbeats.errands import Errands
from railwright_operator.heartbeats.refusals import RefusedError
from railwright_operator.heartbeats.tokens import Tokens
from railwright_operator.metrics import HeartbeatMetrics
from railwright_topology.wiring import WiringError

logger = logging.getLogger(__name__)

PATH = "/v1/inside"
ERRANDS_PATH = "/v1/errands"
BODY_BYTES_MAX = 256 * 1024
"""A document of 64 accelerators and as many adapters by four sources has a quarter of it."""
AT_ONCE_MAX = 64
ASKING_MAX = 16_384
"""Those that wait for an errand: one of each node."""

OnInside = Callable[[str, str], Awaitable[bool]]
"""Takes a node's name and its document; False for a node that is not known, WiringError where the
document breaks a rule."""


class Agents:
    """Takes what they send. ``account`` is the user that their tokens are of."""

    def __init__(
        self,
        tokens: Tokens,
        *,
        account: str,
        on_inside: OnInside,
        errands: Errands,
        is_leader: Callable[[], bool],
        metrics: HeartbeatMetrics,
    ) -> None:
        self._tokens = tokens
        self._account = account
        self._on_inside = on_inside
        self._errands = errands
        self._is_leader = is_leader
        self._metrics = metrics
        self._at_once = {PATH: 0, ERRANDS_PATH: 0}

    async def inside(self, request: web.Request) -> web.Response:
        """Take a document; the answer says whether the agent is to stand by for errands."""
        return await self._handle(request, self._take, AT_ONCE_MAX)

    async def errand(self, request: web.Request) -> web.Response:
        """Answer with an errand, once there is one."""
        return await self._handle(request, self._send, ASKING_MAX)

    async def _handle(
        self,
        request: web.Request,
        act: Callable[[web.Request, str], Awaitable[dict[str, Any]]],
        most: int,
    ) -> web.Response:
        """Answer, and count how it ended."""
        status, path = 500, request.path
        self._at_once[path] += 1
        try:
            if self._at_once[path] > most:
                raise RefusedError(refusals.LATER, "too many messages at once")
            found = await act(request, await self._node(request))
            status = 200
            return messages.answer(status, orjson.dumps(found))
        except RefusedError as refused:
            status = refused.status
            return messages.refusal(refused)
        finally:
            self._at_once[path] -= 1
            self._metrics.requests.labels(path, str(status)).inc()

    async def _node(self, request: web.Request) -> str:
        """The node that the agent speaks for."""
        if not self._is_leader():
            raise RefusedError(refusals.LATER, "this operator is not the leader")
        token = messages.bearer_token(request)
        bearer = await self._tokens.bearer(token, audience=names.GROUP, peer=request.remote or "")
        if bearer.user != self._account or not bearer.node:
            raise RefusedError(refusals.FORBIDDEN, "the token is not of an agent on a node")
        return bearer.node

    async def _take(self, request: web.Request, node: str) -> dict[str, Any]:
        try:
            text = (await messages.body(request, BODY_BYTES_MAX)).decode()
            if not await self._on_inside(node, text):
                raise RefusedError(refusals.LATER, "the node is not known yet")
        except UnicodeDecodeError as error:
            raise RefusedError(refusals.MALFORMED, "the document is no text") from error
        except WiringError as error:
            logger.warning("document refused", extra={"node": node, "error": str(error)})
            raise RefusedError(refusals.MALFORMED, str(error)) from error
        return {"standBy": node in self._errands.wanted}

    async def _send(self, request: web.Request, node: str) -> dict[str, Any]:
        body = await messages.body(request, errands.BODY_BYTES_MAX)
        return await self._errands.ask(node, errands.read(body))
