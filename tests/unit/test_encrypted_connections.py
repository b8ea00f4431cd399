"""The server for messages of pods with TLS: who is trusted, who is admitted, what is bounded."""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from contextlib import closing
from pathlib import Path

import pytest

from fixtures import certificates, heartbeat_gangs, shell
from fixtures.heartbeat_client import KEY, request, serving, status_of
from fixtures.heartbeat_gangs import Gangs
from railwright import protocol
from railwright.endpoint import Endpoint, UnreachableError
from railwright_agent.hardware import HardwareSources
from railwright_agent.reporting import ControllersClient, ControllersUrlError, ReportRefusedError
from railwright_process import authority, connections, tls
from railwright_process.connections import Tls
from railwright_process.tls import TlsConnection

REQUESTS = "railwright_heartbeat_requests_total"
TLS_FAILURES = "railwright_heartbeat_tls_failures_total"
EVICTIONS = "railwright_heartbeat_evictions_total"


def launcher_of(port: int, folder: Path) -> Endpoint:
    (folder / "token").write_text(heartbeat_gangs.token(KEY, 0))
    url = f"https://{certificates.HOST}:{port}"
    return Endpoint(url, folder / "token", certificates.trusted())


async def send(launcher: Endpoint, sequence: int) -> protocol.HeartbeatAnswer:
    heartbeat = heartbeat_gangs.heartbeat(0, sequence)
    return await asyncio.to_thread(
        launcher.post, "/v1/beat", heartbeat, kind=protocol.HeartbeatAnswer
    )


async def test_requests_in_one_segment_are_answered_in_order() -> None:
    async with serving(tls=certificates.server) as (_, client):
        reader, writer = await client.open()
        writer.write(b"".join(request(0, sequence) for sequence in range(1, 6)))
        assert [await status_of(reader) for _ in range(5)] == [200] * 5


async def test_launcher_keeps_its_connection(tmp_path: Path) -> None:
    made: list[ssl.SSLContext] = []

    def context() -> ssl.SSLContext:
        made.append(certificates.server())
        return made[-1]

    async with serving(tls=context) as (_, client):
        with closing(launcher_of(client.port, tmp_path)) as launcher:
            for sequence in range(3):
                assert (await send(launcher, sequence)).order is protocol.Order.CONTINUE
    assert len(made) == 1


@pytest.mark.parametrize("seed", range(20))
def test_message_may_arrive_in_any_pieces(seed: int) -> None:
    """As TCP cuts it, in the handshake too; several records may come in one piece."""
    rng = random.Random(seed)
    server = TlsConnection(certificates.server())
    arriving, leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = certificates.client().wrap_bio(arriving, leaving, server_hostname=certificates.HOST)
    message, got = rng.randbytes(rng.choice([1, 300, 40_000])), b""
    is_sent = False
    while len(got) < len(message):
        try:
            client.do_handshake()
            if not is_sent:
                client.write(message)
                is_sent = True
        except ssl.SSLWantReadError:
            pass
        data = leaving.read()
        while data:
            size = rng.choice([1, 7, 1000, len(data)])
            got += server.decrypt(memoryview(data[:size]))
            data = data[size:]
            arriving.write(server.replies())
    assert got == message
    arriving.write(server.encrypt(b"answer"))
    assert client.read(100) == b"answer"


async def test_client_without_tls_is_closed_and_counted() -> None:
    async with serving(tls=certificates.server) as (gangs, client):
        reader, writer = await asyncio.open_connection(certificates.HOST, client.port)
        writer.write(request(0))
        async with asyncio.timeout(shell.DEADLINE_S):
            assert b"HTTP" not in await reader.read()
        writer.close()
        assert gangs.total(TLS_FAILURES) == 1
        assert await client.status(request(0)) == 200


async def test_older_version_of_tls_is_refused() -> None:
    async with serving(tls=certificates.server) as (gangs, client):
        old = certificates.client()
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(ssl.SSLError, match=r"(?i)protocol.version"):
            await asyncio.open_connection(certificates.HOST, client.port, ssl=old)
        assert gangs.total(TLS_FAILURES) == 1


async def test_connection_in_its_handshake_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts as any other without a token, so strangers cannot hide there."""
    monkeypatch.setattr(connections, "NEWCOMERS_MAX", 1)
    async with serving(tls=certificates.server) as (gangs, client):
        reader, writer = await asyncio.open_connection(certificates.HOST, client.port)
        writer.write(b"\x16\x03\x01")
        assert await client.status(request(0)) == 200
        async with asyncio.timeout(shell.DEADLINE_S):
            assert await reader.read() == b""
        writer.close()
        assert gangs.total(EVICTIONS) == 1


async def test_few_connections_need_memory_for_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are silent, and those with a token, do not count. The oldest one of too many is
    ignored until its deadline: closed, it would come back at once."""
    monkeypatch.setattr(connections, "HANDSHAKES_MAX", 2)
    async with serving(tls=certificates.server) as (gangs, client):
        verified = await client.open()
        verified[1].write(request(0))
        assert await status_of(verified[0]) == 200
        silent = await asyncio.open_connection(certificates.HOST, client.port)
        halves = [await asyncio.open_connection(certificates.HOST, client.port) for _ in range(3)]
        for _, writer in halves:
            writer.write(b"\x16\x03\x01")
        await shell.until(lambda: gangs.total(EVICTIONS) == 1, "too many handshakes")
        verified[1].write(request(0, sequence=2))
        assert await status_of(verified[0]) == 200
        halves[0][1].write(b"no handshake")
        halves[2][1].write(b"no handshake either")
        await shell.until(lambda: gangs.total(TLS_FAILURES) == 1, "the failure of the last")
        assert not any(reader.at_eof() for reader, _ in (silent, *halves[:2]))
        for _, writer in (silent, *halves):
            writer.close()


async def test_handshake_has_the_deadline_of_a_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_DEADLINE_S", 0.1)
    async with serving(tls=certificates.server) as (_, client):
        reader, writer = await asyncio.open_connection(certificates.HOST, client.port)
        writer.write(b"\x16\x03\x01")
        async with asyncio.timeout(shell.DEADLINE_S):
            assert await reader.read() == b""
        writer.close()


async def test_server_without_certificate_answers_no_client() -> None:
    found: list[ssl.SSLContext] = []
    async with serving(tls=lambda: found[0] if found else None) as (_, client):
        with pytest.raises(ConnectionError):
            await client.status(request(0))
        found.append(certificates.server())
        assert await client.status(request(0)) == 200


async def test_crowd_of_bad_handshakes_gets_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is cut off at once comes back at once."""
    monkeypatch.setattr(connections, "CROWD", 1)
    async with serving(tls=certificates.server) as (gangs, client):
        reader, writer = await asyncio.open_connection(certificates.HOST, client.port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await shell.until(lambda: gangs.total(TLS_FAILURES) == 1, "the failure")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await reader.read()
        writer.close()


def other_authority() -> ssl.SSLContext:
    made = authority.new(certificates.HOST, time.time())
    return tls.server_context(authority.sign(made, certificates.HOST, time.time()))


def other_host() -> ssl.SSLContext:
    return certificates.server("127.0.0.2")


def expired() -> ssl.SSLContext:
    long_ago_s = time.time() - 30 * 86_400
    return tls.server_context(authority.sign(certificates.shared(), certificates.HOST, long_ago_s))


@pytest.mark.parametrize("context", [other_authority, other_host, expired])
async def test_launcher_sends_no_token_to_a_stranger(context: Tls, tmp_path: Path) -> None:
    async with serving(tls=context) as (gangs, client):
        launcher = launcher_of(client.port, tmp_path)
        with pytest.raises(UnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
            await send(launcher, 0)
        assert gangs.total(REQUESTS, path="none", code="403") == 0
        await shell.until(lambda: gangs.total(TLS_FAILURES) == 1, "the alert")


@pytest.mark.parametrize("context", [other_authority, other_host, expired])
async def test_agent_sends_no_token_to_a_stranger(context: Tls, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("token")
    (tmp_path / "ca.crt").write_text(certificates.trusted())
    async with serving(tls=context) as (gangs, client):
        url, sources = f"https://127.0.0.1:{client.port}", HardwareSources(tmp_path)
        agent = ControllersClient(url, tmp_path / "token", sources, tmp_path / "ca.crt")
        with pytest.raises(ReportRefusedError, match="CERTIFICATE_VERIFY_FAILED"):
            await asyncio.to_thread(agent.post, "/v1/beat", {}, 5.0)
        await shell.until(lambda: gangs.total(TLS_FAILURES) == 1, "the alert")


async def test_agent_waits_for_the_file_of_authorities(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("token")
    async with serving(tls=certificates.server) as (_, client):
        url, sources = f"https://127.0.0.1:{client.port}", HardwareSources(tmp_path)
        agent = ControllersClient(url, tmp_path / "token", sources, tmp_path / "ca.crt")
        with pytest.raises(ReportRefusedError, match="FileNotFoundError"):
            await asyncio.to_thread(agent.post, "/v1/beat", {}, 5.0)
        (tmp_path / "ca.crt").write_text(certificates.trusted())
        with pytest.raises(ReportRefusedError, match="403"):
            await asyncio.to_thread(agent.post, "/v1/beat", {}, 5.0)
        without = ControllersClient(url, tmp_path / "token", sources)
        with pytest.raises(ControllersUrlError, match="expected --authorities-file"):
            await asyncio.to_thread(without.post, "/v1/beat", {}, 5.0)


@pytest.mark.parametrize("is_genuine", [True, False])
async def test_leader_must_have_a_certificate_of_the_service(
    is_genuine: bool, tmp_path: Path
) -> None:
    """Its address is another one than that which launchers are given."""
    leader = Gangs(1, KEY, tls=certificates.server if is_genuine else other_host)
    async with serving(tls=certificates.server) as (standby, client):
        standby.ready = False
        _, port = await leader.start("127.0.0.2")
        standby.leader_address = f"127.0.0.2:{port}"
        try:
            with closing(launcher_of(client.port, tmp_path)) as launcher:
                if is_genuine:
                    assert (await send(launcher, 0)).order is protocol.Order.CONTINUE
                    assert leader.total(REQUESTS, path="/v1/beat", code="200") == 1
                else:
                    with pytest.raises(UnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
                        await send(launcher, 0)
        finally:
            await leader.server.stop()
