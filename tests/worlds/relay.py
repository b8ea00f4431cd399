"""A TCP relay that can stand still: what is sent either way waits, and no connection breaks."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager

DEADLINE_S = 20.0
CHUNK = 65_536


class Relay:
    """Listens on ``port``. Its methods may be called from any thread."""

    def __init__(self, port: int, loop: asyncio.AbstractEventLoop, flows: asyncio.Event) -> None:
        self.port = port
        self._loop = loop
        self._flows = flows
        self.thaw()

    def __repr__(self) -> str:
        return f"<Relay {self.port} flows={self._flows.is_set()}>"

    def freeze(self) -> None:
        """From now on nothing comes through."""
        self._loop.call_soon_threadsafe(self._flows.clear)

    def thaw(self) -> None:
        """Undo ``freeze``: all that was sent meanwhile comes through."""
        self._loop.call_soon_threadsafe(self._flows.set)


@contextmanager
def in_front_of(target: int) -> Iterator[Relay]:
    """A relay to this port of this machine, in a thread of its own."""
    opened: Future[tuple[Relay, Callable[[], object]]] = Future()

    async def serve() -> None:
        flows, done, loop = asyncio.Event(), asyncio.Event(), asyncio.get_running_loop()

        async def relay(near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
            far, forth = await asyncio.open_connection("127.0.0.1", target)
            await asyncio.gather(_pump(near, forth, flows), _pump(far, back, flows))

        server = await asyncio.start_server(relay, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        opened.set_result((Relay(port, loop, flows), lambda: loop.call_soon_threadsafe(done.set)))
        await done.wait()
        server.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="relay")
    thread.start()
    relay, end = opened.result(DEADLINE_S)
    try:
        yield relay
    finally:
        end()
        thread.join(DEADLINE_S)


async def _pump(
    source: asyncio.StreamReader, sink: asyncio.StreamWriter, flows: asyncio.Event
) -> None:
    """One direction of one connection until its end; then the other direction ends too."""
    with contextlib.suppress(ConnectionError), contextlib.closing(sink):
        while chunk := await source.read(CHUNK):
            await flows.wait()
            sink.write(chunk)
            await sink.drain()
