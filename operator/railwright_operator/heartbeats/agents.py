"""What agents tell of the inside of their nodes, over the server that launchers speak to.

An agent's token is that of its service account and good for us alone; the API server says which
node its pod is bound to. So a pod can speak for its own node only, whatever a body says, and who is
not of that account for none. Who speaks is known before a body is read.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from aiohttp import web

from railwright_api import names
from railwright_operator.heartbeats import messages, refusals
from railwright_operator.heartbeats.refusals import RefusedError
from railwright_operator.heartbeats.tokens import Tokens
from railwright_operator.metrics import HeartbeatMetrics
from railwright_topology.wiring import WiringError

logger = logging.getLogger(__name__)

PATH = "/v1/inside"
BODY_BYTES_MAX = 256 * 1024
"""A document of 64 accelerators and as many adapters by four sources has a quarter of it."""
AT_ONCE_MAX = 64

OnInside = Callable[[str, str], Awaitable[bool]]
"""Takes a node's name and its document; False for a node that is not known, WiringError where the
document breaks a rule."""


class Agents:
    """Takes their documents. ``account`` is the user that their tokens are of."""

    def __init__(
        self,
        tokens: Tokens,
        *,
        account: str,
        on_inside: OnInside,
        is_leader: Callable[[], bool],
        metrics: HeartbeatMetrics,
    ) -> None:
        self._tokens = tokens
        self._account = account
        self._on_inside = on_inside
        self._is_leader = is_leader
        self._metrics = metrics
        self._at_once = 0

    async def handle(self, request: web.Request) -> web.Response:
        """Answer, and count how it ended."""
        status = 500
        self._at_once += 1
        try:
            await self._take(request)
            status = 200
            return messages.answer(status, b"{}")
        except RefusedError as refused:
            status = refused.status
            return messages.refusal(refused)
        finally:
            self._at_once -= 1
            self._metrics.requests.labels(PATH, str(status)).inc()

    async def _take(self, request: web.Request) -> None:
        if self._at_once > AT_ONCE_MAX:
            raise RefusedError(refusals.LATER, "too many documents at once")
        if not self._is_leader():
            raise RefusedError(refusals.LATER, "this operator is not the leader")
        token = messages.bearer_token(request)
        bearer = await self._tokens.bearer(token, audience=names.GROUP, peer=request.remote or "")
        if bearer.user != self._account or not bearer.node:
            raise RefusedError(refusals.FORBIDDEN, "the token is not of an agent on a node")
        try:
            text = (await messages.body(request, BODY_BYTES_MAX)).decode()
            if not await self._on_inside(bearer.node, text):
                raise RefusedError(refusals.LATER, "the node is not known yet")
        except UnicodeDecodeError as error:
            raise RefusedError(refusals.MALFORMED, "the document is no text") from error
        except WiringError as error:
            logger.warning("document refused", extra={"node": bearer.node, "error": str(error)})
            raise RefusedError(refusals.MALFORMED, str(error)) from error
