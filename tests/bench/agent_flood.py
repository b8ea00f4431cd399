"""Send hardware reports without a valid token, each on a new connection, until killed."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from urllib.parse import urlsplit

from fixtures import tls_client

REQUEST = (
    b"POST /v1/hardware HTTP/1.1\r\nHost: controllers\r\nAuthorization: Bearer a.b.c\r\n"
    b"Content-Type: application/json\r\nContent-Length: 65536\r\n\r\n" + b" " * 65_536
)


async def main(url: str, connections: int) -> None:
    address = urlsplit(url)
    assert address.hostname is not None
    assert address.port is not None
    async with asyncio.TaskGroup() as tasks:
        for _ in range(connections):
            tasks.create_task(_send_on(address.hostname, address.port))


async def _send_on(host: str, port: int) -> None:
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(host, port, ssl=tls_client.context())
            try:
                writer.write(REQUEST)
                await writer.drain()
                await reader.read()
            finally:
                writer.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
