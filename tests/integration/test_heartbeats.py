"""Launchers' messages over HTTP, with tokens and keys of a real API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from fixtures import heartbeats, shell
from fixtures.heartbeats import ATTEMPT, JOB, Heartbeats
from fixtures.tokens import aged
from railwright import protocol
from railwright_kube import errors
from railwright_operator.heartbeats import server
from railwright_process import connections
from railwright_testbed import ControlPlane

OTHER_JOB = "0b1f5a5e-0000-4000-8000-000000000002"


@pytest.fixture
async def world(control_plane: ControlPlane, namespace: str) -> AsyncIterator[Heartbeats]:
    async with (
        shell.api(shell.connect(control_plane)) as api,
        heartbeats.listening(api, namespace) as listening,
    ):
        yield listening


def member(rank: int = 0, attempt: int = ATTEMPT) -> protocol.Member:
    return protocol.Member(JOB, attempt, rank)


def register(rank: int) -> protocol.Register:
    return protocol.Register(member(rank), f"10.0.0.{rank}", master_port=29500, num_processes=1)


def heartbeat(rank: int = 0, *, attempt: int = ATTEMPT, sequence: int = 1) -> protocol.Heartbeat:
    return protocol.Heartbeat(member(rank, attempt), sequence, running=1, exited=0)


async def tokens_of(world: Heartbeats) -> list[str]:
    return [await world.token(f"pod-{rank}", uid) for rank, uid in world.pods.items()]


async def test_launchers_wait_for_each_other_then_get_the_world(world: Heartbeats) -> None:
    tokens = await tokens_of(world)
    status, answer = await world.post_message("/v1/register", tokens[1], register(1))
    assert (status, answer["order"], answer["missing"]) == (200, "wait", [0])
    await world.post_message("/v1/register", tokens[0], register(0))
    status, answer = await world.post_message("/v1/register", tokens[1], register(1))
    assert (status, answer["order"]) == (200, "go")
    assert answer["world"]["first_rank"] == 1
    assert answer["world"]["master_address"] == "10.0.0.0"


async def test_token_is_verified_once_for_many_heartbeats(world: Heartbeats) -> None:
    token = (await tokens_of(world))[0]
    for sequence in range(20):
        status, answer = await world.post_message("/v1/beat", token, heartbeat(sequence=sequence))
        assert (status, answer["order"]) == (200, "continue")
    assert world.checks("good") == 1.0


async def test_the_token_of_another_pod_is_refused(world: Heartbeats) -> None:
    tokens = await tokens_of(world)
    assert (await world.post_message("/v1/beat", tokens[1], heartbeat(0)))[0] == 403
    stranger = await world.token("stranger", await world.make_pod("stranger"))
    assert (await world.post_message("/v1/beat", stranger, heartbeat(0)))[0] == 403


async def test_token_of_other_job_or_audience_is_refused(
    world: Heartbeats,
) -> None:
    """The audience of a token names one job."""
    other = await world.token("pod-0", world.pods[0], audience_of=OTHER_JOB)
    assert (await world.post_message("/v1/beat", other, heartbeat(0)))[0] == 403
    bound = {"kind": "Pod", "apiVersion": "v1", "name": "pod-0", "uid": world.pods[0]}
    usual = await world.token_of({"boundObjectRef": bound})
    assert (await world.post_message("/v1/beat", usual, heartbeat(0)))[0] == 403


async def test_a_token_that_is_bound_to_no_pod_is_refused(world: Heartbeats) -> None:
    loose = await world.token_of({"audiences": [heartbeats.audience(JOB)]})
    assert (await world.post_message("/v1/beat", loose, heartbeat(0)))[0] == 403


async def test_an_expired_token_is_refused(world: Heartbeats, control_plane: ControlPlane) -> None:
    token, key = (await tokens_of(world))[0], control_plane.signing_key
    assert (await world.post_message("/v1/beat", aged(token, key, by_s=30), heartbeat(0)))[0] == 200
    expired = aged(token, key, by_s=heartbeats.TOKEN_LIFE_S + 60)
    assert (await world.post_message("/v1/beat", expired, heartbeat(0, sequence=2)))[0] == 403


async def test_message_without_token_is_refused(world: Heartbeats) -> None:
    assert (await world.post_message("/v1/beat", "nonsense", heartbeat(0)))[0] == 403
    assert (await world.post("/v1/beat", protocol.encode(heartbeat(0))))[0] == 403


async def test_token_of_deleted_pod_is_refused(world: Heartbeats) -> None:
    remembered, fresh = [await world.token("pod-0", world.pods[0]) for _ in range(2)]
    assert (await world.post_message("/v1/beat", remembered, heartbeat(0)))[0] == 200
    await world.delete_pod("pod-0", world.pods[0])
    for token in (remembered, fresh):
        assert (await world.post_message("/v1/beat", token, heartbeat(0, sequence=2)))[0] == 403


async def test_revoked_attempt_gets_stop_on_every_path(world: Heartbeats) -> None:
    token = (await tokens_of(world))[0]
    world.sessions.revoke(JOB, ATTEMPT)
    commit = protocol.Commit(member(), 5)
    for path, message in (("register", register(0)), ("beat", heartbeat(0)), ("commit", commit)):
        answer = await world.post_message(f"/v1/{path}", token, message)
        assert answer == (409, {"error": "attempt 1 was revoked"})
    assert world.commits == []


async def test_attempt_not_expected_yet_may_retry(world: Heartbeats) -> None:
    token = (await tokens_of(world))[0]
    assert (await world.post_message("/v1/beat", token, heartbeat(attempt=ATTEMPT + 1)))[0] == 425


async def test_commit_is_granted_once_recorded_and_refused_if_revoked(
    world: Heartbeats,
) -> None:
    """The response follows the status write; a revocation during the write refuses the commit."""
    token = (await tokens_of(world))[0]
    status, answer = await world.post_message("/v1/commit", token, protocol.Commit(member(), 5))
    assert (status, answer["granted"], world.commits) == (200, True, [(JOB, "worker", ATTEMPT, 5)])
    world.commit_error = errors.NotLeader("lost")
    assert (await world.post_message("/v1/commit", token, protocol.Commit(member(), 6)))[0] == 503
    world.commit_error, world.revokes_while_committing = None, True
    refused = await world.post_message("/v1/commit", token, protocol.Commit(member(), 6))
    assert refused == (409, {"error": "attempt 1 was revoked"})


async def test_a_commit_that_takes_too_long_is_to_be_tried_again(
    world: Heartbeats, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = (await tokens_of(world))[0]
    monkeypatch.setattr(server, "COMMIT_DEADLINE_S", 0.05)
    world.records.clear()
    assert (await world.post_message("/v1/commit", token, protocol.Commit(member(), 5)))[0] == 503
    monkeypatch.undo()
    world.records.set()
    assert (await world.post_message("/v1/commit", token, protocol.Commit(member(), 5)))[0] == 200


async def test_an_operator_that_does_not_lead_sends_launchers_away(world: Heartbeats) -> None:
    token = (await tokens_of(world))[0]
    world.leads = False
    assert (await world.post_message("/v1/beat", token, heartbeat()))[0] == 503


async def test_api_outage_does_not_affect_heartbeats(
    world: Heartbeats, control_plane: ControlPlane
) -> None:
    accepted, rejected = await tokens_of(world)
    assert (await world.post_message("/v1/beat", accepted, heartbeat()))[0] == 200
    await asyncio.to_thread(control_plane.stop_api_server)
    try:
        assert (await world.post_message("/v1/beat", accepted, heartbeat(sequence=2)))[0] == 200
        assert (await world.post_message("/v1/beat", rejected, heartbeat(1)))[0] == 200
    finally:
        await asyncio.to_thread(control_plane.start_api_server)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b'{"member":{"job_uid":"u","attempt":1,"node_rank":0},"sequence":NaN}',
        b'{"a":' * 2000,
        b"9" * 5000,
        b"\xff\xfe",
    ],
    ids=["empty", "list", "cut", "NaN", "deep", "long number", "not UTF-8"],
)
async def test_a_malformed_body_is_refused(world: Heartbeats, body: bytes) -> None:
    token = (await tokens_of(world))[0]
    assert (await world.post_message("/v1/beat", token, body))[0] == 400


async def test_body_too_large_or_without_length_is_refused(world: Heartbeats) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b" " * 1024

    token = f"Bearer {(await tokens_of(world))[0]}"
    large = b" " * (protocol.MESSAGE_BYTES_MAX + 1)
    assert (await world.post("/v1/beat", large, Authorization=token))[0] == 413
    assert (await world.post("/v1/beat", chunks(), Authorization=token))[0] == 411


async def test_compressed_body_is_not_opened(world: Heartbeats) -> None:
    headers = {"Content-Encoding": "gzip"}
    assert (await world.post("/v1/beat", b"\x1f\x8b", **headers))[0] == 415


async def test_slow_body_is_given_up(world: Heartbeats, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "BODY_DEADLINE_S", 0.2)
    token = (await tokens_of(world))[0]
    reader, writer = await asyncio.open_connection(*world.address)
    head = f"POST /v1/beat HTTP/1.1\r\nAuthorization: Bearer {token}\r\nContent-Length: 100"
    writer.write(f"{head}\r\n\r\n{{".encode())
    answer = await asyncio.wait_for(reader.readline(), shell.DEADLINE_S)
    assert answer.split()[1] == b"408"
    writer.close()
    await writer.wait_closed()


async def test_slow_head_is_cut_off(world: Heartbeats, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_DEADLINE_S", 0.3)
    reader, writer = await asyncio.open_connection(*world.address)
    writer.write(b"POST /v1/beat HTTP/1.1\r\nHost: x\r\nX-Slow:")
    assert await asyncio.wait_for(reader.read(), shell.DEADLINE_S) == b""
    writer.close()
    await writer.wait_closed()


async def test_node_agents_cannot_reach_the_operator(world: Heartbeats) -> None:
    """Their paths are those of the controllers."""
    token = await world.agents_token("n0")
    headers = {"Authorization": f"Bearer {token}"}
    for path in heartbeats.AGENTS_PATHS:
        url = f"http://{world.address[0]}:{world.address[1]}{path}"
        async with world.http.post(url, data=b"{}", headers=headers) as answer:
            assert answer.status == 404
