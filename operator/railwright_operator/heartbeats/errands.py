"""Agents that stand by, and the errands that they are sent on: to measure another node.

The operator opens no connection to anybody: an agent asks for its next errand, and is answered when
there is one, or after a while that there is none. This process made up a token when it began, and
keeps it in memory. Each agent gets one derived from it, and with each errand the key of that pair:
no agent can speak for another. An agent is measured only at an address of its own node, as the
node's status says, or in a network that the site declares.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from types import MappingProxyType
from typing import Annotated, Any

import msgspec

from railwright_operator.heartbeats.messages import RefusedError
from railwright_topology.probing import addresses, keys
from railwright_topology.probing.readings import Reading

HOLD_S = 40.0
"""So long an agent waits for an answer at most: 5,000 that stand by are 125 requests a second."""
ABSENT_S = HOLD_S + 20.0
"""An agent that has not asked for so long is not there any more."""
OVERHEAD_S = 25.0
"""What an errand may take beyond twice the time that bandwidth is measured for: the agents' own
deadlines are within it."""
KEY_BYTES = 32
BODY_BYTES_MAX = 2048
REASON_MAX = 200
PORT_MAX = 65535
LATENCY_S_MAX, BYTES_PER_S_MAX = 60.0, 1e15

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Asking:
    """What an agent says when it asks: where it answers probes (nowhere yet: empty), or why it
    cannot (``unfit``), and what came of its last errand."""

    host: str = ""
    port: int = 0
    unfit: str = ""
    number: int = 0
    reading: Reading = field(default_factory=Reading)


@dataclass(slots=True)
class _Agent:
    """An agent that polls for probe tasks. ``task`` is the one that it has, as it is sent, and
    ``result`` its outcome; ``dispatched`` ends the wait of its poll."""

    heard_s: float
    host: str = ""
    port: int = 0
    task: Json | None = field(default=None, repr=False)
    dispatched: asyncio.Event = field(default_factory=asyncio.Event)
    result: asyncio.Future[Reading] | None = None


class Errands:
    """Who stands by, by the name of the node. ``wanted`` are those that are to, each with the
    addresses of its node; ``networks`` are those of the site's rails, in CIDR notation."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._token = secrets.token_hex(KEY_BYTES)
        self._agents: dict[str, _Agent] = {}
        self._unfit: dict[str, str] = {}
        self._number = 0
        self.wanted: Mapping[str, Collection[str]] = {}
        self.networks: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Errands wanted={len(self.wanted)} there={len(self._agents)}>"

    @property
    def unfit(self) -> Mapping[str, str]:
        """Nodes whose agent cannot answer probes, and why."""
        return MappingProxyType(self._unfit)

    def there(self) -> frozenset[str]:
        """The nodes whose agents answer probes and wait to be sent."""
        oldest_s = self._clock() - ABSENT_S
        return frozenset(
            node for node, its in self._agents.items() if its.host and its.heard_s > oldest_s
        )

    async def ask(self, node: str, asking: Asking) -> Json:
        """What the agent of this node is to do; nothing more where it need not stand by."""
        self._unfit.pop(node, None)
        unfit = asking.unfit or self._refusal(node, asking.host)
        if node not in self.wanted or unfit:
            if unfit:
                self._unfit[node] = unfit
            self._agents.pop(node, None)
            return {}
        agent = self._agents.get(node)
        credentials = {"key": keys.agent_token(self._token, node)}
        if agent is None or not asking.host:
            # It gets tasks once it polls again: then it has the key.
            self._agents[node] = _Agent(self._clock())
            return credentials
        agent.heard_s, agent.host, agent.port = self._clock(), asking.host, asking.port
        self._complete(agent, asking)
        # A poll that was given up, and whose connection is still open, ends now.
        agent.dispatched.set()
        if agent.task is None:
            agent.dispatched = asyncio.Event()
            await self._wait(agent, agent.dispatched)
        return credentials | (agent.task or {})

    def _refusal(self, node: str, host: str) -> str:
        """Why nobody is sent to this address of a node; empty if somebody may be."""
        own = self.wanted.get(node)
        if not host or own is None or host in own or addresses.within(host, self.networks):
            return ""
        return (
            f"its agent answers probes at {host}, which is neither an address of the node's status "
            "nor in spec.probing.networks of the Fabric"
        )

    async def send(self, pair: tuple[str, str], *, seconds: float, crowd: bool = False) -> Reading:
        """Let the agent of the first node measure how well it reaches the second; an empty reading
        where it does not come to that."""
        source, target = (self._agents.get(node) for node in pair)
        if source is None or target is None or not target.host or source.result is not None:
            return Reading()
        self._number += 1
        source.task = {
            "errand": self._number,
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
        """Nodes that are gone are not there any more."""
        self._agents = {node: its for node, its in self._agents.items() if node in nodes}
        self._unfit = {node: why for node, why in self._unfit.items() if node in nodes}

    def _complete(self, agent: _Agent, asking: Asking) -> None:
        """Take the result of its task. An agent that polls again without one never got the task."""
        if agent.task is None or agent.result is None or agent.result.done():
            return
        if asking.number == agent.task["errand"]:
            agent.result.set_result(asking.reading)
            agent.task = None

    async def _wait(self, agent: _Agent, dispatched: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(HOLD_S):
                await dispatched.wait()
        except TimeoutError:
            pass
        finally:
            agent.heard_s = self._clock()


class _Message(msgspec.Struct):
    """An agent's request. Fields of a later version are skipped."""

    host: str = ""
    port: int = 0
    unfit: str = ""
    errand: Annotated[int, msgspec.Meta(ge=0, le=2**53)] = 0
    latency_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    bytes_per_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0


def read(body: bytes) -> Asking:
    """Read an agent's request. Raises RefusedError."""
    try:
        message = msgspec.json.decode(body, type=_Message)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RefusedError(HTTPStatus.BAD_REQUEST, str(error)) from error
    host, port = message.host, message.port if message.host else 0
    if host:
        # An address, never a name: a name would have to be resolved.
        refusal = addresses.refusal(host) or ("" if 0 < port <= PORT_MAX else f"port {port}")
        if refusal:
            raise RefusedError(HTTPStatus.BAD_REQUEST, f"`host` and `port`: {refusal}")
        host = str(addresses.parse(host))
    reading = Reading(
        _plausible(message.latency_s, LATENCY_S_MAX),
        _plausible(message.bytes_per_s, BYTES_PER_S_MAX),
    )
    return Asking(host, port, message.unfit[:REASON_MAX], message.errand, reading)


def _plausible(value: float, most: float) -> float | None:
    """The value if it can be measured. The other node may have lied to the one that reports it."""
    return value if 0 < value <= most else None
