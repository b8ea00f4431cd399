"""Heartbeats of launchers beside thousands of connections without a token."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fixtures import certificates, strangers
from fixtures.heartbeat_client import Client, request, serving, status_of
from fixtures.heartbeat_gangs import Gangs

STRANGERS = 4096
LAUNCHERS = 20
LATEST_S = 2.0
FLOODED_S = 8.0
THERE_S = 60.0


@contextlib.asynccontextmanager
async def flooded(port: int, source: str) -> AsyncIterator[None]:
    """Flood the server from this address."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        strangers.__name__,
        str(port),
        source,
        str(STRANGERS),
        cwd=Path(strangers.__file__).parents[1],
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(THERE_S):
            assert await process.stdout.readline() == b"there\n"
        yield
    finally:
        process.stdin.close()
        await process.communicate()


async def launch(client: Client, number: int, *, keeps: bool, until_s: float) -> list[float]:
    """How long each heartbeat of a launcher took."""
    took: list[float] = []
    connection = None
    while time.monotonic() < until_s:
        started_s = time.monotonic()
        reader, writer = connection or await client.open()
        writer.write(request(number, len(took) + 1))
        assert await status_of(reader) == 200
        took.append(time.monotonic() - started_s)
        if keeps:
            connection = reader, writer
        else:
            writer.close()
        await asyncio.sleep(0.5)
    return took


async def send_heartbeats(gangs: Gangs, client: Client) -> list[float]:
    """The time that each heartbeat took, half of them on connections of their own."""
    until_s = time.monotonic() + FLOODED_S
    took = await asyncio.gather(
        *(
            launch(client, number, keeps=number % 2 == 0, until_s=until_s)
            for number in range(LAUNCHERS)
        )
    )
    assert gangs.total("railwright_token_checks_total", outcome="good") == LAUNCHERS
    return [each for its in took for each in its]


@pytest.mark.alone
@pytest.mark.parametrize("source", ["127.0.0.1", "127.0.0.2"])
async def test_unverified_connections_do_not_delay_heartbeats(source: str) -> None:
    """From the launchers' own address, and from another."""
    context = certificates.server()
    async with (
        serving(LAUNCHERS, tls=lambda: context) as (gangs, client),
        flooded(client.port, source),
    ):
        took = await send_heartbeats(gangs, client)
    assert max(took) < LATEST_S, sorted(took)[-5:]
