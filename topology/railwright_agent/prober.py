"""The sending end of a probe: measures the round-trip latency of small messages, and the bandwidth.

Latency is the best of many round trips, as whatever disturbs one only makes it longer. Bandwidth is
that of several streams at once, as one alone may not fill a fast link.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import math
import socket
import struct
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from dataclasses import dataclass

from railwright_agent import handshake
from railwright_agent.handshake import (
    ECHO_BYTES,
    GRACE_S,
    HANDSHAKE_S,
    PairKey,
    ProbeError,
    ProbeKind,
    Request,
)
from railwright_topology.probing import keys

ROUND_TRIPS = 30
STREAMS = 4
SURVEYOR = "survey"
"""The name of a person's survey; agents have addresses for names, or nodes."""
SECONDS = 0.3
FORGETTING = struct.pack("ii", 1, 0)
"""What is still to be sent when a connection ends is not: it would be in the next probe's way."""
_CHUNK = bytes(64 * 1024)
_SIOCGIFADDR = 0x8915
_NAME_BYTES_MAX = 15

Connection = contextlib.AbstractAsyncContextManager[tuple[StreamReader, StreamWriter]]


@dataclass(frozen=True, slots=True)
class Measurement:
    """Of one pair of nodes, once."""

    latency_s: float
    bytes_per_s: float


async def measure(
    host: str, port: int, key: PairKey, *, seconds: float = SECONDS, trips: int = ROUND_TRIPS
) -> Measurement:
    """Measure once how well this node reaches another; a ProbeError says why there is nothing."""
    async with _reported(host, port, _longest_s(seconds)):
        latency_s = await _latency_s(host, port, key, seconds, trips)
        bytes_per_s = await _bytes_per_s(host, port, key, seconds)
    return Measurement(latency_s, bytes_per_s)


async def run(task: Request) -> Measurement:
    """Measure the agent that a task names."""
    assert task.key is not None, "every task has one"
    trips = 1 if task.kind is ProbeKind.CROWD else ROUND_TRIPS
    return await measure(task.host, task.port, task.key, seconds=task.seconds, trips=trips)


async def send(
    source: str,
    target: str,
    port: int,
    shared: str,
    *,
    seconds: float = SECONDS,
    kind: ProbeKind = ProbeKind.TASK,
) -> Measurement:
    """Let the agent at one address measure the path to the agent at another. The tokens of both
    are derived from ``shared``, which neither has."""
    key = handshake.pair_key(keys.agent_token(shared, source), SURVEYOR)
    theirs = handshake.pair_key(keys.agent_token(shared, target), source)
    task = Request(kind, seconds, target, port, theirs)
    async with (
        _reported(source, port, HANDSHAKE_S + GRACE_S + _longest_s(seconds)),
        _connection(source, port, key, task) as (reader, _),
    ):
        found = await handshake.receive(reader)
    if "refused" in found:
        raise ProbeError(f"{source} could not measure {target}: {found['refused']}")
    return Measurement(handshake.number(found, "latency_s"), handshake.number(found, "bytes_per_s"))


def address_of(interface: str) -> str | None:
    """The IPv4 address of a network interface of this machine; None if it has none."""
    name = interface.encode()[:_NAME_BYTES_MAX]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            found = fcntl.ioctl(any_socket, _SIOCGIFADDR, struct.pack("256s", name))
        except OSError:
            return None
    return socket.inet_ntoa(found[20:24])


def _longest_s(seconds: float) -> float:
    """How long a measurement may take."""
    return 2 * (HANDSHAKE_S + seconds + GRACE_S)


@contextlib.asynccontextmanager
async def _reported(host: str, port: int, deadline_s: float) -> AsyncIterator[None]:
    """Raise timeouts and connection errors as ProbeError."""
    try:
        async with asyncio.timeout(deadline_s):
            yield
    except TimeoutError as error:
        raise ProbeError(f"{host}:{port} took too long to answer.") from error
    except (OSError, asyncio.IncompleteReadError, UnicodeError) as error:
        raise ProbeError(f"{host}:{port} cannot be reached: {error}") from error


async def _latency_s(host: str, port: int, key: PairKey, seconds: float, trips: int) -> float:
    clock = asyncio.get_running_loop().time
    best_s = math.inf
    async with _connection(host, port, key, Request(ProbeKind.LATENCY, seconds)) as (
        reader,
        writer,
    ):
        end_s = clock() + seconds
        for trip in range(trips):
            sent_s = clock()
            if trip and sent_s > end_s:
                break
            writer.write(bytes(ECHO_BYTES))
            await reader.readexactly(ECHO_BYTES)
            best_s = min(best_s, clock() - sent_s)
    return best_s


async def _bytes_per_s(host: str, port: int, key: PairKey, seconds: float) -> float:
    all_there = asyncio.Barrier(STREAMS)
    request = Request(ProbeKind.BANDWIDTH, seconds)
    try:
        async with asyncio.TaskGroup() as group:
            streams = [
                group.create_task(_throughput(_connection(host, port, key, request), all_there))
                for _ in range(STREAMS)
            ]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return sum(stream.result() for stream in streams)


async def _throughput(connection: Connection, all_there: asyncio.Barrier) -> float:
    """Of one stream, in bytes a second. None sends before all are there: behind a full link the
    others would come late."""
    async with connection as (reader, writer):
        await all_there.wait()
        filler = asyncio.create_task(_fill(writer))
        try:
            counted = await handshake.receive(reader)
        finally:
            filler.cancel()
            await asyncio.gather(filler, return_exceptions=True)
    took_s = handshake.number(counted, "seconds")
    if not took_s:
        raise ProbeError("the other agent counted for no time at all.")
    return handshake.number(counted, "bytes") / took_s


async def _fill(writer: StreamWriter) -> None:
    while True:
        writer.write(_CHUNK)
        await writer.drain()
        # Draining does not wait while the kernel takes all; the other streams need their turn.
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def _connection(
    host: str, port: int, key: PairKey, request: Request
) -> AsyncIterator[tuple[StreamReader, StreamWriter]]:
    async with asyncio.timeout(HANDSHAKE_S):
        reader, writer = await asyncio.open_connection(host, port)
    try:
        connected = writer.get_extra_info("socket")
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, FORGETTING)
        async with asyncio.timeout(HANDSHAKE_S):
            await handshake.begin(reader, writer, key, request)
        yield reader, writer
    finally:
        writer.transport.abort()
