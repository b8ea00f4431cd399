"""A TCP relay that can stand still: what is sent either way waits, and no connection breaks.

As a program it listens in whatever network namespace it is started in, and leads to a socket of the
file system, which all namespaces see: ``python -m worlds.relay ADDRESS PORT SOCKET``.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

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
    with _serving(target, None) as relay:
        yield relay


@contextmanager
def behind(path: Path, target: int) -> Iterator[None]:
    """A socket of the file system that leads to this port of this machine."""
    with _serving(target, path):
        yield


@contextmanager
def _serving(target: int, path: Path | None) -> Iterator[Relay]:
    opened: Future[tuple[Relay, Callable[[], object]]] = Future()

    async def serve() -> None:
        flows, done, loop = asyncio.Event(), asyncio.Event(), asyncio.get_running_loop()

        async def relay(near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
            far, forth = await asyncio.open_connection("127.0.0.1", target)
            await asyncio.gather(_pump(near, forth, flows), _pump(far, back, flows))

        port = 0
        if path is not None:
            server = await asyncio.start_unix_server(relay, path)
        else:
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


async def _lead(host: str, port: int, path: str) -> None:
    flows = asyncio.Event()
    flows.set()

    async def relay(near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        far, forth = await asyncio.open_unix_connection(path)
        await asyncio.gather(_pump(near, forth, flows), _pump(far, back, flows))

    server = await asyncio.start_server(relay, host, port)
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_lead(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
