"""Send hardware reports, each on a new connection, until killed: without a valid token, or with the
tokens and documents of agents in a file."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from fixtures import tls_client

BODY_BYTES, ANSWER_BYTES = 65_536, 4_096
INVALID = ("a.b.c", "")


async def main(url: str, connections: int, messages: Sequence[tuple[str, str]]) -> None:
    address = urlsplit(url)
    assert address.hostname is not None
    assert address.port is not None
    async with asyncio.TaskGroup() as tasks:
        for _, message in zip(range(connections), itertools.cycle(messages), strict=False):
            tasks.create_task(_send_on(address.hostname, address.port, *message))


async def _send_on(host: str, port: int, token: str, document: str) -> None:
    for number in itertools.count():
        request = _request(token, document, number)
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(host, port, ssl=tls_client.context())
            try:
                writer.write(request)
                await writer.drain()
                await reader.read(ANSWER_BYTES)
            finally:
                writer.close()


def _request(token: str, document: str, number: int) -> bytes:
    """The body differs from the one before by its spaces, so that the document is parsed again."""
    size = BODY_BYTES + number % BODY_BYTES
    head = (
        "POST /v1/hardware HTTP/1.1\r\nHost: controllers\r\n"
        f"Authorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
    )
    return (head + document.ljust(size)).encode()


if __name__ == "__main__":
    files = [json.loads(Path(each).read_text(encoding="utf-8")) for each in sys.argv[3:]]
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), *files or [[INVALID]]))
