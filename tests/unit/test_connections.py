"""Connections to the heartbeat server: places before and after a token, deadlines, odd requests."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path

import pytest

from fixtures import heartbeat_gangs, shell
from fixtures.heartbeat_client import KEY, request, serving, status_of
from railwright import protocol
from railwright.endpoint import Endpoint
from railwright_process import connections, messages, rate_limit

EVICTIONS = "railwright_heartbeat_evictions_total"
REQUESTS = "railwright_heartbeat_requests_total"


@contextmanager
def bounded(monkeypatch: pytest.MonkeyPatch, **bounds: float) -> Iterator[None]:
    for name, bound in bounds.items():
        monkeypatch.setattr(connections, name, bound)
    yield


async def test_requests_in_one_segment_are_answered_in_order() -> None:
    async with serving() as (gangs, client):
        reader, writer = await client.open()
        writer.write(b"".join(request(0, sequence) for sequence in range(1, 6)))
        assert [await status_of(reader) for _ in range(5)] == [200] * 5
        view = gangs.sessions.attempt(heartbeat_gangs.member(0).job_uid, 1)
        assert view is not None
        assert view.progress == heartbeat_gangs.heartbeat(0, 5).progress


async def test_token_of_another_rank_is_refused() -> None:
    """The token of a pod is refused for other pods of its job."""
    async with serving() as (gangs, client):
        other = f"Bearer {heartbeat_gangs.token(KEY, 1)}"
        assert await client.status(request(0, Authorization=other)) == HTTPStatus.FORBIDDEN
        view = gangs.sessions.attempt(heartbeat_gangs.member(0).job_uid, 1)
        assert view is not None
        assert view.progress is None


async def test_connection_has_one_message_a_round() -> None:
    """A segment full of messages must not delay those of other connections."""
    async with serving() as (gangs, client):
        answered = [0.0]
        _, writer = await client.open()
        writer.write(b"".join(request(0, sequence) for sequence in range(1, 101)))
        async with asyncio.timeout(shell.DEADLINE_S):
            while answered[-1] < 100:
                await asyncio.sleep(0)
                answered.append(gangs.total(REQUESTS, path="/v1/beat", code="200"))
        assert max(now - before for before, now in itertools.pairwise(answered)) == 1


async def test_pod_over_its_rate_waits_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"MESSAGE_S": 60.0, "BURST_S": 30.0, "WAIT_S_MAX": 60.0}.items():
        monkeypatch.setattr(rate_limit, name, seconds)
    async with serving() as (gangs, client):
        opened = [await client.open() for _ in range(3)]
        for _, writer in opened:
            writer.write(request(0) * 20)
        other, writer = await client.open()
        writer.write(request(1))
        assert await status_of(other) == 200
        await shell.until(lambda: gangs.total(REQUESTS, path="/v1/beat", code="200") == 2, "both")
        assert not any(reader.at_eof() for reader, _ in opened)


async def test_pod_over_its_rate_is_answered_later(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"MESSAGE_S": 0.05, "BURST_S": 0.1}.items():
        monkeypatch.setattr(rate_limit, name, seconds)
    async with serving() as (_, client):
        opened = [await client.open() for _ in range(3)]
        for _, writer in opened:
            writer.write(request(0) * 5)
        for reader, _ in opened:
            assert [await status_of(reader) for _ in range(5)] == [200] * 5


async def test_request_in_single_bytes_is_answered() -> None:
    async with serving() as (_, client):
        reader, writer = await client.open()
        for byte in request(0):
            writer.write(bytes([byte]))
            await asyncio.sleep(0)
        assert await status_of(reader) == 200


@pytest.mark.parametrize(
    ("stated", "status"),
    [
        (b"GET /v1/beat HTTP/1.1\r\nHost: x\r\n\r\n", 405),
        (b"POST /elsewhere HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 404),
        (b"POST /v1/beat HTTP/2\r\nContent-Length: 0\r\n\r\n", 400),
        (b"POST /v1/beat\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400),
        (b"POST /v1/beat HTTP/1.1\r\nHost: x\r\n\r\n", 411),
        (b"POST /v1/beat HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (b"POST /v1/beat HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"POST /v1/beat HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST /v1/beat HTTP/1.1\r\nContent-Length: 1_0\r\n\r\n", 400),
        (b"POST /v1/beat HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 400),
        (b"POST /v1/beat HTTP/1.1\r\nContent-Length : 1\r\n\r\n", 400),
        (b"POST /v1/beat HTTP/1.1\r\nA: b\nContent-Length: 1\r\n\r\n", 400),
        (b"POST /v1/beat HTTP/1.1\r\nContent-Length: 1\r\n folded: x\r\n\r\n", 400),
        (b"POST /v1/beat HTTP/1.1\r\nContent-Length: 1\r\n\r\n", 403),
        (b"POST /v1/beat HTTP/1.1\r\nX: " + b"x" * messages.HEAD_BYTES_MAX, 431),
    ],
    ids=lambda value: repr(value)[-40:] if isinstance(value, bytes) else None,
)
async def test_odd_head_is_refused(stated: bytes, status: int) -> None:
    async with serving() as (_, client):
        assert await client.status(stated) == status


async def test_launchers_own_client_is_understood(tmp_path: Path) -> None:
    async with serving() as (_, client):
        (tmp_path / "token").write_text(heartbeat_gangs.token(KEY, 0))
        operator = Endpoint(f"http://127.0.0.1:{client.port}", tmp_path / "token")
        for sequence in (1, 2):
            answer = await asyncio.to_thread(
                operator.post,
                "/v1/beat",
                heartbeat_gangs.heartbeat(0, sequence),
                kind=protocol.HeartbeatAnswer,
            )
            assert answer.order is protocol.Order.CONTINUE
        operator.close()


async def test_close_is_obeyed() -> None:
    async with serving() as (_, client):
        reader, writer = await client.open()
        writer.write(request(0, Connection="close"))
        assert [await status_of(reader) for _ in range(2)] == [200, 0]


async def test_body_without_a_valid_token_is_not_read() -> None:
    async with serving() as (_, client):
        stated = request(0, Authorization="Bearer nonsense", Content_Length="1000")
        assert await client.status(stated[: stated.index(b"{")]) == 403


async def test_oldest_newcomer_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds = {"NEWCOMERS_A_PEER_MAX": 4, "NEWCOMERS_MAX": 6}
    with bounded(monkeypatch, **bounds):
        async with serving() as (gangs, client):
            silent = [await client.open() for _ in range(8)]
            assert [await status_of(reader) for reader, _ in silent[:4]] == [0] * 4
            others = [await client.open("127.0.0.2") for _ in range(3)]
            assert await status_of(silent[4][0]) == 0
            silent[7][1].write(request(0))
            assert await status_of(silent[7][0]) == 200
            others[2][1].write(request(1))
            assert await status_of(others[2][0]) == 200
            assert gangs.total(EVICTIONS) == 5.0


async def test_verified_connection_is_never_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    with bounded(monkeypatch, NEWCOMERS_A_PEER_MAX=2, NEWCOMERS_MAX=2):
        async with serving() as (_, client):
            reader, writer = await client.open()
            writer.write(request(0))
            assert await status_of(reader) == 200
            for _ in range(20):
                await client.open()
            writer.write(request(0, sequence=2))
            assert await status_of(reader) == 200


async def test_pod_has_few_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    with bounded(monkeypatch, CONNECTIONS_A_POD_MAX=2):
        async with serving() as (_, client):
            opened = [await client.open() for _ in range(3)]
            for reader, writer in opened:
                writer.write(request(0))
                assert await status_of(reader) == 200
            other, writer = await client.open()
            writer.write(request(1))
            assert await status_of(other) == 200
            assert await status_of(opened[0][0]) == 0
            opened[1][1].write(request(0, sequence=2))
            assert await status_of(opened[1][0]) == 200


async def test_silent_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    with bounded(monkeypatch, HEAD_DEADLINE_S=0.1, IDLE_S=0.1):
        async with serving() as (_, client):
            never, _ = await client.open()
            once, writer = await client.open()
            writer.write(request(0))
            assert await status_of(once) == 200
            assert [await status_of(never), await status_of(once)] == [0, 0]


async def test_server_that_is_not_ready_refuses_before_the_body() -> None:
    async with serving() as (gangs, client):
        gangs.ready = False
        stated = request(0)
        assert await client.status(stated[: stated.index(b"{")]) == 503
