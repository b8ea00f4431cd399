"""The answering end of a probe: echoes small messages, counts received bytes, or runs a task.

It bounds what one prober can do to it: how many connections there are, how long each lasts, and how
much of what it sends is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from asyncio import IncompleteReadError, Server, StreamReader, StreamWriter

from railwright_agent import handshake, prober
from railwright_agent.handshake import ECHO_BYTES, ProbeError, ProbeKind, Request

CONNECTIONS_MAX = 64
_CHUNK_BYTES = 256 * 1024


class Responder:
    """Serves probes with a key derived from the token, and runs tasks if allowed."""

    def __init__(self, token: str, *, runs_tasks: bool = True) -> None:
        if len(token) < handshake.TOKEN_LENGTH_MIN:
            least = handshake.TOKEN_LENGTH_MIN
            raise ProbeError(f"The token has {len(token)} characters; {least} are the least.")
        self.token = token
        self._runs_tasks = runs_tasks
        self._connections = 0

    async def start(self, host: str, port: int) -> Server:
        """Listen; the caller closes it."""
        return await asyncio.start_server(self._serve, host, port, limit=_CHUNK_BYTES)

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        self._connections += 1
        try:
            # Invalid input must end no more than its own connection.
            with contextlib.suppress(TimeoutError, OSError, IncompleteReadError, ProbeError):
                if self._connections <= CONNECTIONS_MAX:
                    await self._probe(reader, writer)
        finally:
            self._connections -= 1
            writer.transport.abort()

    async def _probe(self, reader: StreamReader, writer: StreamWriter) -> None:
        async with asyncio.timeout(handshake.HANDSHAKE_S):
            request = await handshake.accept(reader, writer, self.token)
        if request.kind in (ProbeKind.TASK, ProbeKind.CROWD):
            if self._runs_tasks:
                await self._run_task(writer, request)
            else:
                await handshake.send(
                    writer, {"refused": "only the controllers dispatch probe tasks."}
                )
            return
        async with asyncio.timeout(request.seconds + handshake.GRACE_S):
            if request.kind is ProbeKind.LATENCY:
                await _echo(reader, writer)
            else:
                await _count(reader, writer, request)

    async def _run_task(self, writer: StreamWriter, request: Request) -> None:
        try:
            found = await prober.run(request)
        except ProbeError as error:
            await handshake.send(writer, {"refused": str(error)[:200]})
        else:
            await handshake.send(writer, dataclasses.asdict(found))


async def _echo(reader: StreamReader, writer: StreamWriter) -> None:
    while True:
        writer.write(await reader.readexactly(ECHO_BYTES))
        await writer.drain()


async def _count(reader: StreamReader, writer: StreamWriter, request: Request) -> None:
    """Count the bytes that arrive within the time: the sender has only those that left its program.
    The time runs from now on for all streams of a probe, also for one whose first bytes are lost:
    rates of different times do not add up."""
    clock = asyncio.get_running_loop().time
    started_s, received = clock(), 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout_at(started_s + request.seconds):
            while chunk := await reader.read(_CHUNK_BYTES):
                received += len(chunk)
            return
    await handshake.send(writer, {"bytes": received, "seconds": clock() - started_s})
    # Closing while bytes arrive would reset the connection, and the answer might be lost.
    while await reader.read(_CHUNK_BYTES):
        pass
