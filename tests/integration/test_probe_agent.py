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

from fixtures import local_network
from railwright_agent import handshake, prober, responder, surveyor
from railwright_agent.handshake import PairKey, ProbeError
from railwright_agent.responder import Responder
from railwright_topology.probing import addresses, keys

SHARED = "a token of this test alone"
HOST, OTHER = "127.0.0.1", "127.0.0.2"
TOKEN = keys.agent_token(SHARED, HOST)
KEY = handshake.pair_key(TOKEN, "tester")


@pytest.fixture
def loopback_is_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents may be sent to loopback addresses, as all of them are on this machine."""
    monkeypatch.setattr(addresses, "refusal", lambda _: "")


@contextlib.asynccontextmanager
async def _responding(*, host: str = HOST, port: int = 0) -> AsyncIterator[int]:
    server = await Responder(keys.agent_token(SHARED, host)).start(host, port)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_a_probe_measures_both() -> None:
    async with _responding() as port:
        found = await prober.measure(HOST, port, KEY, seconds=0.1)
    assert 0 < found.latency_s < 0.1
    assert found.bytes_per_s > 1e6


@pytest.mark.usefixtures("loopback_is_a_network")
async def test_agent_measures_another_on_request() -> None:
    async with _responding() as port, _responding(host=OTHER, port=port):
        found = await prober.send(HOST, OTHER, port, SHARED, seconds=0.1)
    assert 0 < found.latency_s < 0.1
    assert found.bytes_per_s > 1e6


@pytest.mark.usefixtures("loopback_is_a_network")
async def test_agent_without_probe_tasks_refuses_them_and_is_measured() -> None:
    server = await Responder(TOKEN, runs_tasks=False).start(HOST, 0)
    async with server, _responding(host=OTHER, port=server.sockets[0].getsockname()[1]) as port:
        with pytest.raises(ProbeError, match="only the controllers dispatch probe tasks"):
            await prober.send(HOST, OTHER, port, SHARED, seconds=0.1)
        assert (await prober.measure(HOST, port, KEY, seconds=0.1)).latency_s > 0


@pytest.mark.usefixtures("loopback_is_a_network")
async def test_unreachable_agent_is_reported() -> None:
    async with _responding() as port:
        with pytest.raises(ProbeError, match=f"{HOST} could not measure {OTHER}: .*cannot be reac"):
            await prober.send(HOST, OTHER, port, SHARED, seconds=0.1)


@pytest.mark.usefixtures("loopback_is_a_network")
async def test_survey_dispatches_agents_and_names_silent_ones() -> None:
    """Agents measure each other; an agent that does not poll is named."""
    hosts = {f"node-{at}": f"127.0.0.{at}" for at in range(1, 6)}
    stated: list[str] = []
    async with contextlib.AsyncExitStack() as stack:
        port = await stack.enter_async_context(_responding())
        for host in list(hosts.values())[1:4]:
            await stack.enter_async_context(_responding(host=host, port=port))
        agents = surveyor.SurveyedAgents(hosts, port, SHARED)
        found = await surveyor.run(agents, at_once=2, seconds=0.02, log=stated.append)
    assert {*found.tiers[-1]} <= {*hosts} - {"node-5"}
    assert "node-5: no probe of it succeeded" in found.strange
    assert stated[-1].startswith(f"{found.pairs} pairs, ")
    assert any(" -> node-5: " in line for line in stated)


@pytest.mark.parametrize(
    ("nodes", "refusal"),
    [
        ("a 10.0.0.1\nb\n", ":2: each line has a node's name and its address, once."),
        ("a 10.0.0.1\n\na 10.0.0.2\n", ":3: each line has"),
    ],
)
def test_invalid_node_list_is_refused_with_its_line(
    tmp_path: Path, nodes: str, refusal: str
) -> None:
    listed, token = tmp_path / "nodes", tmp_path / "token"
    listed.write_text(nodes)
    token.write_text(SHARED)
    command = [sys.executable, "-m", "railwright_agent", "survey", str(listed)]
    answer = subprocess.run(
        [*command, "--token-file", str(token)], capture_output=True, text=True, timeout=60
    )
    assert answer.returncode == 1
    assert refusal in answer.stderr


def test_person_surveys_with_a_token_for_each_agent(tmp_path: Path) -> None:
    """As docs/fabric.md says: tokens derived from one that stays with the person."""
    agent = [sys.executable, "-m", "railwright_agent"]
    shared = tmp_path / "secret"
    shared.write_text(SHARED)
    with local_network.opened() as network, contextlib.ExitStack() as running:
        hosts = [local_network.address(network, number) for number in (1, 2, 3)]
        for host in hosts:
            derive = [*agent, "token", host, "--token-file", str(shared)]
            token = tmp_path / host
            token.write_bytes(subprocess.check_output(derive, timeout=60))
            serve = [*agent, "serve", "--bind", host, "--token-file", str(token)]
            process = running.enter_context(subprocess.Popen(serve, stdout=subprocess.PIPE))
            running.callback(process.terminate)
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
        listed = tmp_path / "nodes"
        listed.write_text("".join(f"node-{at} {host}\n" for at, host in enumerate(hosts)))
        survey = [*agent, "survey", str(listed), "--token-file", str(shared), "--seconds", "0.05"]
        done = subprocess.run(survey, capture_output=True, text=True, timeout=120)
    assert "0 of them failed" in done.stderr, done.stderr
    assert done.returncode == 0


async def test_probe_with_wrong_token_is_refused() -> None:
    async with _responding() as port:
        with pytest.raises(ProbeError, match="refused: the key is not that of this pair"):
            await prober.measure(HOST, port, handshake.pair_key("another token", "tester"))


async def test_responder_without_the_token_is_not_trusted() -> None:
    """Its measurement is discarded."""

    async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await handshake.send(writer, {"challenge": secrets.token_hex(16)})
        await handshake.receive(reader)
        await handshake.send(writer, {"proof": secrets.token_hex(32)})
        writer.close()

    async with await asyncio.start_server(pretend, HOST, 0) as server:
        with pytest.raises(ProbeError, match="does not have the key"):
            await prober.measure(HOST, server.sockets[0].getsockname()[1], KEY)


async def test_a_proof_is_worth_nothing_a_second_time() -> None:
    async with _responding() as port:
        reader, writer = await asyncio.open_connection(HOST, port)
        seen: list[bytes] = []
        write = writer.write

        def record(data: bytes) -> None:
            seen.append(data)
            write(data)

        writer.write = record  # type: ignore[assignment, method-assign]
        request = handshake.Request(handshake.ProbeKind.LATENCY, 1.0)
        await handshake.begin(reader, writer, KEY, request)
        writer.close()
        again, replay = await asyncio.open_connection(HOST, port)
        await handshake.receive(again)
        replay.write(b"".join(seen))
        assert "refused" in await handshake.receive(again)
        replay.close()


LATENCY: dict[str, object] = {
    "kind": "latency",
    "seconds": 1,
    "port": 0,
    "challenge": "",
    "source": "x",
}
TASK = LATENCY | {"kind": "task", "port": 80, "host": "169.254.169.254", "as": "x"}


async def test_agent_is_sent_to_no_loopback_address() -> None:
    async with _responding() as port, _responding(host=OTHER, port=port):
        with pytest.raises(ProbeError, match=r"127\.0\.0\.2 is a loopback address"):
            await prober.send(HOST, OTHER, port, SHARED, seconds=0.1)


async def test_agent_speaks_for_itself_alone() -> None:
    """An agent has its own token and the key that a survey gave it for one probe task."""
    async with _responding() as port:
        given = handshake.pair_key(TOKEN, OTHER)
        assert (await prober.measure(HOST, port, given, seconds=0.05)).latency_s > 0
        own = keys.agent_token(SHARED, OTHER)
        for source, secret in (
            ("tester", given.secret),
            (prober.SURVEYOR, given.secret),
            (OTHER, own.encode()),
            (OTHER, keys.pair_key(own, HOST).encode()),
        ):
            with pytest.raises(ProbeError, match="refused: the key is not that of this pair"):
                await prober.measure(HOST, port, PairKey(source, secret))


async def test_key_of_a_probe_task_is_sealed() -> None:
    """Who reads the connection of a survey learns no key of a pair."""
    request = handshake.Request(
        handshake.ProbeKind.TASK, 1.0, "10.0.0.1", 7946, handshake.pair_key(TOKEN, OTHER)
    )
    read: list[handshake.Request] = []
    seen: list[bytes] = []

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        read.append(await handshake.accept(reader, writer, TOKEN))
        writer.close()

    async with await asyncio.start_server(respond, HOST, 0) as server:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection(HOST, port)
        write = writer.write

        def record(data: bytes) -> None:
            seen.append(data)
            write(data)

        writer.write = record  # type: ignore[assignment, method-assign]
        await handshake.begin(reader, writer, KEY, request)
        writer.close()
    assert read == [request]
    assert request.key is not None
    sent = b"".join(seen)
    assert request.key.secret not in sent
    assert request.key.secret.hex().encode() not in sent


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
        ({"kind": "latency", "seconds": 1}, "`port` is no number"),
        ({"kind": "task", "seconds": 1, "host": "a", "port": 65536}, "`port` is no port"),
        ({"kind": "task", "seconds": 1, "host": "a", "port": 0.5}, "`port` is no port"),
        ({"kind": "latency", "seconds": 1, "port": 0}, "`challenge` is no text"),
        (LATENCY, "`host` is no text"),
        (LATENCY | {"host": "", "proof": ""}, "the key is not"),
        (TASK | {"sealed": "no digits"}, "`sealed` is no number in hexadecimal"),
        (TASK | {"sealed": "00"}, "what is sealed is no key"),
        (TASK | {"sealed": "00" * 64}, "no agent is sent there: 169.254.169.254 is a link-local"),
        (
            TASK | {"sealed": "00" * 64, "host": HOST},
            "no agent is sent there: 127.0.0.1 is a loop",
        ),
        (TASK | {"sealed": "00" * 64, "host": "10.0.0.1", "proof": ""}, "the key is not"),
    ],
)
async def test_a_request_out_of_range_is_refused(message: dict[str, object], refusal: str) -> None:
    body = json.dumps(message).encode()
    async with _responding() as port:
        assert refusal in await _refusal(port, len(body).to_bytes(2) + body)


async def test_silent_peer_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
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
            await prober.measure(HOST, port, KEY, seconds=0.1)
        writer.close()


async def test_probe_of_closed_port_raises_probe_error() -> None:
    async with _responding() as port:
        pass
    with pytest.raises(ProbeError, match="cannot be reached"):
        await prober.measure(HOST, port, KEY)


def test_a_token_that_is_easily_guessed_is_not_taken() -> None:
    with pytest.raises(ProbeError, match="The token has 5 characters; 16 are the least"):
        Responder("token")


async def _refusal(port: int, sent: bytes) -> str:
    reader, writer = await asyncio.open_connection(HOST, port)
    await handshake.receive(reader)
    writer.write(sent)
    refusal = await handshake.receive(reader)
    writer.close()
    return str(refusal["refused"])


async def test_impossible_answer_is_not_from_an_agent_with_the_token() -> None:
    """A response that is not a valid seal is discarded."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await handshake.send(writer, {"challenge": "x"})
        await handshake.receive(reader)
        await handshake.send(writer, {"proof": "\ud800"})
        writer.close()

    async with await asyncio.start_server(answer, HOST, 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ProbeError, match="does not have the key"):
            await prober.measure(HOST, port, KEY, seconds=0.1)


async def test_an_address_that_none_can_be_cannot_be_reached() -> None:
    with pytest.raises(ProbeError, match="cannot be reached"):
        await prober.measure("fe80::1%" + 80 * "a", 7946, KEY, seconds=0.1)
