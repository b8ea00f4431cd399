"""Receive reports of hardware and of GPU utilization, and polls for probe tasks, from node agents.

An agent's token is that of its service account, with an audience of ours, and its pod determines
the node. So a pod can report only its own node, whatever a body contains, and pods of other service
accounts can report none. The token is verified before a body is read.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
import orjson

from railwright_api import names
from railwright_controllers.agents import probe_tasks
from railwright_controllers.agents.probe_tasks import ProbeTasks
from railwright_kube.tokens import Bearer
from railwright_process.connections import Route
from railwright_process.messages import RefusedError, Response
from railwright_topology.parts import PARTS_MAX
from railwright_topology.wiring import WiringError

logger = logging.getLogger(__name__)

PATH = "/v1/hardware"
POLL_PATH = "/v1/probe-tasks"
UTILIZATION_PATH = "/v1/gpu-utilization"
BODY_BYTES_MAX = 256 * 1024
"""A document of 64 accelerators and as many adapters by four sources has a quarter of it."""
UTILIZATION_BYTES_MAX = 8 * 1024
AT_ONCE_MAX = 64
POLLS_MAX = 16_384
"""Polls that wait for a probe task: one of each node."""

OnHardwareReport = Callable[[str, str], Awaitable[bool]]
"""Takes a node's name and its document; returns False if there is no such node. Raises WiringError
for a document that breaks a rule."""

OnUtilization = Callable[[str, Sequence[float]], None]
"""Takes a node's name and the utilization of its GPUs."""

Act = Callable[[str, bytes], Awaitable[dict[str, Any]]]
"""Handles a request of a node's agent; returns the response."""


class _Utilization(msgspec.Struct):
    """The utilization of each GPU, from 0 to 1. Fields of a later version are skipped."""

    gpus: Annotated[
        tuple[Annotated[float, msgspec.Meta(ge=0, le=1)], ...],
        msgspec.Meta(min_length=1, max_length=PARTS_MAX),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agents:
    """The requests of node agents. ``service_account`` is the user name in their tokens."""

    service_account: str
    on_hardware_report: OnHardwareReport
    on_utilization: OnUtilization
    probe_tasks: ProbeTasks

    def routes(self) -> Mapping[str, Route]:
        """The paths of agents."""

        def route(bytes_max: int, act: Act, most: int) -> Route:
            handle = functools.partial(_handle, act, asyncio.Semaphore(most))
            return Route(bytes_max, self._admit, handle)

        return {
            PATH: route(BODY_BYTES_MAX, self._take, AT_ONCE_MAX),
            UTILIZATION_PATH: route(UTILIZATION_BYTES_MAX, self._take_utilization, AT_ONCE_MAX),
            POLL_PATH: route(probe_tasks.BODY_BYTES_MAX, self._send, POLLS_MAX),
        }

    def _admit(self, bearer: Bearer) -> None:
        """Raise RefusedError unless the bearer is an agent on a node."""
        agent = bearer.service_account == self.service_account and names.GROUP in bearer.audiences
        if not agent or not bearer.node:
            raise RefusedError("the token is not of an agent on a node", HTTPStatus.FORBIDDEN)

    async def _take(self, node: str, body: bytes) -> dict[str, Any]:
        """Store a hardware report; the response states whether the agent is to poll."""
        try:
            if not await self.on_hardware_report(node, body.decode()):
                raise RefusedError("the node is not cached yet", HTTPStatus.SERVICE_UNAVAILABLE)
        except UnicodeDecodeError as error:
            raise RefusedError("the document is no text") from error
        except WiringError as error:
            logger.warning("document refused", extra={"node": node, "error": str(error)})
            raise RefusedError(str(error)) from error
        polls = node in (self.probe_tasks.selected or ())
        return {"poll": polls} | ({"networks": self.probe_tasks.networks} if polls else {})

    async def _take_utilization(self, node: str, body: bytes) -> dict[str, Any]:
        try:
            message = msgspec.json.decode(body, type=_Utilization)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise RefusedError(str(error)) from error
        self.on_utilization(node, message.gpus)
        return {}

    async def _send(self, node: str, body: bytes) -> dict[str, Any]:
        """Answer with a probe task, once there is one."""
        return await self.probe_tasks.poll(node, probe_tasks.read(body))


async def _handle(act: Act, limit: asyncio.Semaphore, bearer: Bearer, body: bytes) -> Response:
    if limit.locked():
        raise RefusedError("too many messages at once", HTTPStatus.SERVICE_UNAVAILABLE)
    async with limit:
        return Response(200, orjson.dumps(await act(bearer.node, body)))
