"""Two agents that probe each other, and what a stranger gets from one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from railwright_agent import handshake, prober, responder, surveyor
from railwright_agent.handshake import ProbeError
from railwright_agent.responder import Responder

TOKEN = b"a token of this test alone"
HOST, OTHER = "127.0.0.1", "127.0.0.2"


@contextlib.asynccontextmanager
async def _responding(
    token: bytes = TOKEN, *, host: str = HOST, port: int = 0
) -> AsyncIterator[int]:
    server = await Responder(token).start(host, port)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_a_probe_measures_both() -> None:
    async with _responding() as port:
        found = await prober.measure(HOST, port, TOKEN, seconds=0.1)
    assert 0 < found.latency_s < 0.1
    assert found.bytes_per_s > 1e6


async def test_an_agent_measures_another_for_whoever_asks() -> None:
    async with _responding() as port, _responding(host=OTHER, port=port):
        found = await prober.send(HOST, OTHER, port, TOKEN, seconds=0.1)
    assert 0 < found.latency_s < 0.1
    assert found.bytes_per_s > 1e6


async def test_an_agent_that_runs_no_errands_refuses_them_and_is_measured() -> None:
    server = await Responder(TOKEN, runs_errands=False).start(HOST, 0)
    async with server, _responding(host=OTHER, port=server.sockets[0].getsockname()[1]) as port:
        with pytest.raises(ProbeError, match="errands are the operator's to give"):
            await prober.send(HOST, OTHER, port, TOKEN, seconds=0.1)
        assert (await prober.measure(HOST, port, TOKEN, seconds=0.1)).latency_s > 0


async def test_an_agent_that_cannot_reach_another_says_so() -> None:
    async with _responding() as port:
        with pytest.raises(ProbeError, match=f"{HOST} could not measure {OTHER}: .*cannot be reac"):
            await prober.send(HOST, OTHER, port, TOKEN, seconds=0.1)


async def test_a_survey_sends_agents_to_each_other_and_tells_who_is_silent() -> None:
    hosts = {f"node-{at}": f"127.0.0.{at}" for at in range(1, 6)}
    said: list[str] = []
    async with contextlib.AsyncExitStack() as stack:
        port = await stack.enter_async_context(_responding())
        for host in list(hosts.values())[1:4]:
            await stack.enter_async_context(_responding(host=host, port=port))
        agents = surveyor.Agents(hosts, port, TOKEN)
        found = await surveyor.run(agents, at_once=2, seconds=0.02, say=said.append)
    assert {*found.tiers[-1]} <= {*hosts} - {"node-5"}
    assert "node-5: no probe of it reached anybody" in found.strange
    assert said[-1].startswith(f"{found.pairs} pairs, ")
    assert any(" -> node-5: " in line for line in said)


@pytest.mark.parametrize(
    ("nodes", "refusal"),
    [
        ("a 10.0.0.1\nb\n", ":2: each line has a node's name and its address, once."),
        ("a 10.0.0.1\n\na 10.0.0.2\n", ":3: each line has"),
    ],
)
def test_a_list_of_nodes_that_is_none_is_refused_with_its_line(
    tmp_path: Path, nodes: str, refusal: str
) -> None:
    listed, token = tmp_path / "nodes", tmp_path / "token"
    listed.write_text(nodes)
    token.write_bytes(TOKEN)
    command = [sys.executable, "-m", "railwright_agent", "survey", str(listed)]
    answer = subprocess.run(
        [*command, "--token-file", str(token)], capture_output=True, text=True, timeout=60
    )
    assert answer.returncode == 1
    assert refusal in answer.stderr


async def test_who_does_not_know_the_token_is_refused() -> None:
    async with _responding() as port:
        with pytest.raises(ProbeError, match="refused: the token is not the one known here"):
            await prober.measure(HOST, port, b"another token of that test")


async def test_a_responder_that_does_not_know_the_token_is_not_believed() -> None:
    async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await handshake.send(writer, {"challenge": secrets.token_hex(16)})
        await handshake.receive(reader)
        await handshake.send(writer, {"proof": secrets.token_hex(32)})
        writer.close()

    async with await asyncio.start_server(pretend, HOST, 0) as server:
        with pytest.raises(ProbeError, match="does not know the token"):
            await prober.measure(HOST, server.sockets[0].getsockname()[1], TOKEN)


async def test_a_proof_is_worth_nothing_a_second_time() -> None:
    async with _responding() as port:
        reader, writer = await asyncio.open_connection(HOST, port)
        seen: list[bytes] = []
        write = writer.write

        def record(data: bytes) -> None:
            seen.append(data)
            write(data)

        writer.write = record  # type: ignore[assignment, method-assign]
        request = handshake.Request(handshake.Kind.LATENCY, 1.0)
        await handshake.ask(reader, writer, TOKEN, request)
        writer.close()
        again, replay = await asyncio.open_connection(HOST, port)
        await handshake.receive(again)
        replay.write(b"".join(seen))
        assert "refused" in await handshake.receive(again)
        replay.close()


@pytest.mark.parametrize(
    ("sent", "refusal"),
    [
        (b"\xff\xff", "a message of 65535 bytes"),
        (b"\x00\x02{]", "no JSON"),
        (b"\x04\x00" + b"[" * 1024, "no JSON"),
        (b"\x00\x02[]", "no JSON object"),
        (b'\x00\x0e{"kind": "all"', "no JSON"),
    ],
)
async def test_nonsense_is_refused(sent: bytes, refusal: str) -> None:
    async with _responding() as port:
        assert refusal in await _refusal(port, sent)


@pytest.mark.parametrize(
    ("message", "refusal"),
    [
        ({"kind": "all"}, "`kind` is none of latency, bandwidth"),
        ({"kind": "latency", "seconds": 11}, "`seconds` is not above 0 and at most 10"),
        ({"kind": "latency", "seconds": True}, "`seconds` is no number"),
        ({"kind": "latency", "seconds": 10**400}, "`seconds` is out of range"),
        ({"kind": "latency", "seconds": float("nan")}, "`seconds` is out of range"),
        ({"kind": "latency", "seconds": 1}, "`host` is no text"),
        ({"kind": "errand", "seconds": 1, "host": "a", "port": 65536}, "`port` is no port"),
        ({"kind": "errand", "seconds": 1, "host": "a", "port": 0.5}, "`port` is no port"),
        ({"kind": "latency", "seconds": 1, "host": "", "port": 0}, "`challenge` is no text"),
        (
            {"kind": "latency", "seconds": 1, "host": "", "port": 0, "challenge": "", "proof": ""},
            "the token is not",
        ),
    ],
)
async def test_a_request_out_of_range_is_refused(message: dict[str, object], refusal: str) -> None:
    body = json.dumps(message).encode()
    async with _responding() as port:
        assert refusal in await _refusal(port, len(body).to_bytes(2) + body)


async def test_who_says_nothing_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "HANDSHAKE_S", 0.1)
    async with _responding() as port, asyncio.timeout(5):
        reader, writer = await asyncio.open_connection(HOST, port)
        await handshake.receive(reader)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()


async def test_connections_beyond_the_most_are_not_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responder, "CONNECTIONS_MAX", 1)
    async with _responding() as port:
        reader, writer = await asyncio.open_connection(HOST, port)
        await handshake.receive(reader)
        with pytest.raises(ProbeError):
            await prober.measure(HOST, port, TOKEN, seconds=0.1)
        writer.close()


async def test_where_nobody_listens_there_is_no_measurement() -> None:
    async with _responding() as port:
        pass
    with pytest.raises(ProbeError, match="cannot be reached"):
        await prober.measure(HOST, port, TOKEN)


def test_a_token_that_is_easily_guessed_is_not_taken() -> None:
    with pytest.raises(ProbeError, match="The token has 5 bytes; 16 are the least"):
        Responder(b"token")


async def _refusal(port: int, sent: bytes) -> str:
    reader, writer = await asyncio.open_connection(HOST, port)
    await handshake.receive(reader)
    writer.write(sent)
    refusal = await handshake.receive(reader)
    writer.close()
    return str(refusal["refused"])


async def test_what_answers_with_no_text_that_can_be_is_no_agent_that_knows_the_token() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await handshake.send(writer, {"challenge": "x"})
        await handshake.receive(reader)
        await handshake.send(writer, {"proof": "\ud800"})
        writer.close()

    async with await asyncio.start_server(answer, HOST, 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ProbeError, match="does not know the token"):
            await prober.measure(HOST, port, TOKEN, seconds=0.1)


async def test_an_address_that_none_can_be_cannot_be_reached() -> None:
    with pytest.raises(ProbeError, match="cannot be reached"):
        await prober.measure("fe80::1%" + 80 * "a", 7946, TOKEN, seconds=0.1)
