"""Single requests to a heartbeat server of gangs, byte by byte."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from railwright import wire
from worlds import heartbeat_gangs, shell
from worlds.heartbeat_gangs import Gangs
from worlds.tokens import SigningKey

KEY = SigningKey("key")


@asynccontextmanager
async def serving(launchers: int = 2) -> AsyncIterator[tuple[Gangs, Client]]:
    """A server of gangs, and a way to reach it."""
    gangs = Gangs(launchers, KEY)
    client = Client(await gangs.start())
    try:
        yield gangs, client
    finally:
        client.close()
        await gangs.server.stop()


class Client:
    """Opens connections to one address."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self.port = address[1]
        self._writers: list[asyncio.StreamWriter] = []

    async def open(
        self, source: str = "127.0.0.1"
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(*self._address, local_addr=(source, 0))
        self._writers.append(writer)
        return reader, writer

    async def status(self, request: bytes) -> int:
        """Of the answer to a request on a connection of its own; 0 where it is cut off."""
        reader, writer = await self.open()
        writer.write(request)
        return await status_of(reader)

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


async def status_of(reader: asyncio.StreamReader) -> int:
    """The status of the next answer, its body read; 0 at the end."""
    async with asyncio.timeout(shell.DEADLINE_S):
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionResetError):
            return 0
        length = int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0])
        await reader.readexactly(length)
        return int(head.split()[1])


def request(number: int, sequence: int = 1, **fields: str) -> bytes:
    """A heartbeat of a launcher; ``fields`` replace header fields."""
    body = wire.encode(heartbeat_gangs.beat(number, sequence))
    usual = {
        "Host": "x",
        "Content-Length": str(len(body)),
        "Authorization": f"Bearer {heartbeat_gangs.token(KEY, number)}",
    }
    said = usual | {name.replace("_", "-"): value for name, value in fields.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in said.items())
    return f"POST /v1/beat HTTP/1.1\r\n{lines}\r\n".encode() + body
