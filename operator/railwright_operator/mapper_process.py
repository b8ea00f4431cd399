"""A process of the mapper, which can fail in any way: it ends, hangs, or answers anything."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from asyncio import StreamReader, StreamWriter
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable, Sequence

from railwright_mapper import messages
from railwright_mapper.messages import Reply
from railwright_scheduler.mapping.gang_mapping import MappingRequest, MappingResult, fits
from railwright_scheduler.policy.mappings import WAIT_S, Unmapped

COMMAND = (sys.executable, "-I", "-m", "railwright_mapper")

ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1"}
"""Nothing of the operator's own: neither credentials nor the address of the API server."""

START_S = 30.0
"""No gang waits for a start in particular: one that is not begun is mapped by any process."""


class MapperError(Exception):
    """There is no result, with the reason; the process is of no use any more."""

    def __init__(self, reason: str, outcome: Unmapped = Unmapped.FAILED) -> None:
        super().__init__(reason)
        self.outcome = outcome


class MapperProcess:
    """A process that reads requests by now. It maps one gang at a time."""

    def __init__(self, process: Process, reader: StreamReader, writer: StreamWriter) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._requests = 0

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether it has."""
        return self._process.returncode is not None

    async def map_ranks(self, request: MappingRequest) -> MappingResult | None:
        """The mapping; None if finding any order is too much work. Raises MapperError."""
        try:
            async with asyncio.timeout(WAIT_S):
                line = await self._send(request)
            reply = _read(line)
        except TimeoutError:
            raise MapperError(f"no answer for {WAIT_S:.0f} s", Unmapped.LATE) from None
        except (OSError, ValueError) as error:
            raise MapperError(f"no answer: {error}") from error
        if reply.failure:
            raise MapperError(reply.failure)
        if reply.number != self._requests:
            raise MapperError(f"the answer to request {reply.number} instead of {self._requests}")
        if reply.result is not None and not fits(request, reply.result):
            raise MapperError(f"no mapping of these nodes: {line[:200]!r}")
        return reply.result

    async def _send(self, request: MappingRequest) -> bytes:
        self._requests += 1
        self._writer.write(messages.encode_request(self._requests, request))
        await self._writer.drain()
        return await self._reader.readline()


@contextlib.asynccontextmanager
async def started(
    on_end: Callable[[], None], *, command: Sequence[str] = COMMAND
) -> AsyncIterator[MapperProcess]:
    """A new process, killed behind the block; ``on_end`` is called when it ends.

    Raises OSError and MapperError.
    """
    # A socket can be closed with unread bytes in it, which asyncio's pipes of a process cannot.
    ours, its = socket.socketpair()
    with ours, its:
        reader, writer = await asyncio.open_connection(sock=ours, limit=messages.REPLY_BYTES_MAX)
        try:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=its.fileno(), stdout=its.fileno(), env=ENVIRONMENT
            )
            its.close()
            ended = asyncio.create_task(process.wait())
            ended.add_done_callback(lambda _: on_end())
            try:
                await _wait_ready(reader)
                yield MapperProcess(process, reader, writer)
            finally:
                _kill(process)
                await _until_done(ended)
        finally:
            writer.transport.abort()


def _kill(process: Process) -> None:
    """``Process.kill`` would take the exit status away from asyncio's own watcher."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


async def _until_done(ended: asyncio.Task[int]) -> None:
    """Wait also when cancelled: a process that was killed is about to end."""
    try:
        await asyncio.shield(ended)
    except asyncio.CancelledError:
        await asyncio.wait({ended})
        raise


async def _wait_ready(reader: StreamReader) -> None:
    try:
        async with asyncio.timeout(START_S):
            line = await reader.readline()
    except TimeoutError:
        raise MapperError(f"not ready for {START_S:.0f} s") from None
    except (OSError, ValueError) as error:
        raise MapperError(f"not ready: {error}") from error
    if line != messages.READY:
        raise MapperError(f"not ready: {line[:200]!r}")


def _read(line: bytes) -> Reply:
    if not line.endswith(b"\n"):
        raise MapperError("the process ended")
    return messages.decode_reply(line)
