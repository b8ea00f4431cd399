"""Send the reports of many node agents, each paced as the real one, until killed.

Thousands of agents do not fit on one machine. What they send, and when, is the same.
"""

from __future__ import annotations

import asyncio
import json
import random
import ssl
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from bench.agent_flood import ANSWER_BYTES
from fixtures import tls_client
from railwright_agent.reporting import AGAIN_S, AGAIN_S_MAX, READ_S, REPORT_EVERY, TIMEOUT_S

OK = b"HTTP/1.1 200 "


async def main(url: str, messages: list[tuple[str, str]], seed: int) -> None:
    address = urlsplit(url)
    assert address.hostname is not None
    assert address.port is not None
    context, rng = tls_client.context(), random.Random(seed)
    agents = [
        _Agent(address.hostname, address.port, _request(*message), context, rng)
        for message in messages
    ]
    for agent in agents:
        agent.report()
    await asyncio.get_running_loop().create_future()


@dataclass(slots=True)
class _Agent:
    """One whose hardware does not change."""

    host: str
    port: int
    request: bytes
    context: ssl.SSLContext
    rng: random.Random
    failures: int = 0
    task: asyncio.Task[None] | None = None

    def report(self) -> None:
        """Report now, and again as an agent does."""
        self.task = asyncio.create_task(self._report())

    async def _report(self) -> None:
        if await _is_taken(self.host, self.port, self.request, self.context):
            self.failures = 0
            pause_s = sum(self.rng.uniform(0.5, 1.5) * READ_S for _ in range(REPORT_EVERY))
        else:
            self.failures += 1
            again_s = min(AGAIN_S_MAX, AGAIN_S * 2 ** min(self.failures, 8) / 2)
            pause_s = self.rng.uniform(0.5, 1.5) * again_s
        asyncio.get_running_loop().call_later(pause_s, self.report)


async def _is_taken(host: str, port: int, request: bytes, context: ssl.SSLContext) -> bool:
    try:
        async with asyncio.timeout(TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, port, ssl=context)
            try:
                writer.write(request)
                await writer.drain()
                answer = await reader.read(ANSWER_BYTES)
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False
    return answer.startswith(OK)


def _request(token: str, document: str) -> bytes:
    body = document.encode()
    head = (
        "POST /v1/hardware HTTP/1.1\r\nHost: controllers\r\nConnection: close\r\n"
        f"Authorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


if __name__ == "__main__":
    found = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
    asyncio.run(main(sys.argv[1], found, int(sys.argv[3])))
