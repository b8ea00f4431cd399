"""Dispatch probe tasks to node agents: each task is to measure the path to another node's agent.

The controllers connect to no agent: an agent polls for its next task, and the response is sent when
there is one, or after ``HOLD_S`` without one. This process generates a secret at its start and
keeps it in memory. Each agent gets a token derived from it, and with each task the key of that
pair, so no agent can impersonate another. An agent is measured only at an address of its own node's
status, or in a network that the site declares.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Annotated, Any

import msgspec

from railwright_process.messages import RefusedError
from railwright_topology.probing import addresses, keys
from railwright_topology.probing.readings import Reading

HOLD_S = 40.0
"""How long a poll waits for a task: 5,000 agents send 125 requests a second."""
ABSENT_S = HOLD_S + 20.0
"""An agent that has not polled for this long is absent."""
UNFIT_S = 900.0
"""An agent that cannot answer probes polls again about every three minutes: what it did not repeat
for this long holds no more."""
OVERHEAD_S = 25.0
"""How long a task may take beyond twice the time of the bandwidth measurement. The agents' own
deadlines are shorter."""
KEY_BYTES = 32
BODY_BYTES_MAX = 2048
REASON_MAX = 200
PORT_MAX = 65535
LATENCY_S_MAX, BYTES_PER_S_MAX = 60.0, 1e15

Json = dict[str, Any]


class Poll(msgspec.Struct, frozen=True):
    """An agent's poll: the address at which it answers probes (empty: none yet), or why it cannot
    (``unfit``), and the result of its last task. Fields of a later version are skipped."""

    host: str = ""
    port: int = 0
    unfit: str = ""
    number: Annotated[int, msgspec.Meta(ge=0, le=2**53)] = msgspec.field(
        default=0, name="probeTask"
    )
    latency_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    bytes_per_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0

    @property
    def reading(self) -> Reading:
        """What was measured, as far as it is possible: the other node may send wrong values."""
        return Reading(
            _plausible(self.latency_s, LATENCY_S_MAX),
            _plausible(self.bytes_per_s, BYTES_PER_S_MAX),
        )


@dataclass(slots=True)
class _Agent:
    """An agent that polls for probe tasks. ``task`` is the one that it has, as it is sent, and
    ``result`` its outcome; ``dispatched`` ends the wait of its poll."""

    polled_s: float
    host: str = ""
    port: int = 0
    task: Json | None = field(default=None, repr=False)
    dispatched: asyncio.Event = field(default_factory=asyncio.Event)
    result: asyncio.Future[Reading] | None = None


class ProbeTasks:
    """The polling agents by node. ``selected`` are the nodes whose agents are to poll, with the
    addresses of each, and None until this process has looked for surveys; ``networks`` are those
    of the site's rails, in CIDR notation."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._token = secrets.token_hex(KEY_BYTES)
        self._agents: dict[str, _Agent] = {}
        self._unfit: dict[str, tuple[str, float]] = {}
        self._number = 0
        self.selected: Mapping[str, Collection[str]] | None = None
        self.networks: tuple[str, ...] = ()

    @property
    def unfit(self) -> Mapping[str, str]:
        """Nodes whose agent cannot answer probes, and why."""
        oldest_s = self._clock() - UNFIT_S
        return {node: why for node, (why, at_s) in self._unfit.items() if at_s > oldest_s}

    def there(self) -> frozenset[str]:
        """The nodes whose agents answer probes and poll for tasks."""
        oldest_s = self._clock() - ABSENT_S
        return frozenset(
            node for node, its in self._agents.items() if its.host and its.polled_s > oldest_s
        )

    async def poll(self, node: str, message: Poll) -> Json:
        """Wait for the next task of a node's agent; empty if the agent is not to poll.

        Raises RefusedError while that is unknown: the process before may have called the agent.
        """
        if self.selected is None:
            raise RefusedError(
                "this process has not looked for surveys yet", HTTPStatus.SERVICE_UNAVAILABLE
            )
        self._unfit.pop(node, None)
        unfit = message.unfit or self._refusal(node, message.host)
        if node not in self.selected or unfit:
            if unfit:
                self._unfit[node] = unfit, self._clock()
            self._agents.pop(node, None)
            return {}
        agent = self._agents.get(node)
        credentials = {"key": keys.agent_token(self._token, node)}
        if agent is None or not message.host:
            # The agent gets tasks from its next poll on, when it has its key.
            self._agents[node] = _Agent(self._clock())
            return credentials
        agent.polled_s, agent.host, agent.port = self._clock(), message.host, message.port
        self._complete(agent, message)
        # An abandoned poll whose connection is still open ends now.
        agent.dispatched.set()
        if agent.task is None:
            dispatched = agent.dispatched = asyncio.Event()
            try:
                async with asyncio.timeout(HOLD_S):
                    await dispatched.wait()
            except TimeoutError:
                pass
            finally:
                agent.polled_s = self._clock()
        return credentials | (agent.task or {})

    def _refusal(self, node: str, host: str) -> str:
        """Why this address of a node is not probed; empty if it may be."""
        own = (self.selected or {}).get(node)
        if not host or own is None or host in own or addresses.within(host, self.networks):
            return ""
        return (
            f"its agent answers probes at {host}, which is neither an address of the node's status "
            "nor in spec.probing.networks of the Fabric"
        )

    async def dispatch(
        self, pair: tuple[str, str], *, seconds: float, crowd: bool = False
    ) -> Reading:
        """Measure the path from the first node to the second; an empty reading without a result."""
        source, target = (self._agents.get(node) for node in pair)
        if source is None or target is None or not target.host or source.result is not None:
            return Reading()
        self._number += 1
        source.task = {
            "probeTask": self._number,
            "host": target.host,
            "port": target.port,
            "seconds": seconds,
            "crowd": crowd,
            "source": pair[0],
            "pairKey": keys.pair_key(keys.agent_token(self._token, pair[1]), pair[0]),
        }
        source.result = asyncio.get_running_loop().create_future()
        source.dispatched.set()
        try:
            async with asyncio.timeout(2 * seconds + OVERHEAD_S):
                return await source.result
        except TimeoutError:
            return Reading()
        finally:
            source.task = source.result = None

    def forget_all_but(self, nodes: Collection[str]) -> None:
        """Drop nodes that no longer exist."""
        self._agents = {node: its for node, its in self._agents.items() if node in nodes}
        self._unfit = {node: its for node, its in self._unfit.items() if node in nodes}

    def _complete(self, agent: _Agent, message: Poll) -> None:
        """Take the result of the agent's task. A poll without a result means that it got no
        task."""
        if agent.task is None or agent.result is None or agent.result.done():
            return
        if message.number == agent.task["probeTask"]:
            agent.result.set_result(message.reading)
            agent.task = None


def read(body: bytes) -> Poll:
    """Read an agent's request. Raises RefusedError."""
    try:
        message = msgspec.json.decode(body, type=Poll)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RefusedError(str(error)) from error
    host, port = message.host, message.port if message.host else 0
    if host:
        # An address, never a name: a name would have to be resolved.
        refusal = addresses.refusal(host) or ("" if 0 < port <= PORT_MAX else f"port {port}")
        if refusal:
            raise RefusedError(f"`host` and `port`: {refusal}")
        host = str(addresses.parse(host))
    unfit = message.unfit[:REASON_MAX]
    return msgspec.structs.replace(message, host=host, port=port, unfit=unfit)


def _plausible(value: float, most: float) -> float | None:
    """The value if it is possible."""
    return value if 0 < value <= most else None
