"""Launchers and agents that reach a replica that does not lead go on to the one that does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from fixtures import heartbeat_gangs
from fixtures.heartbeat_gangs import Gangs
from fixtures.tokens import SigningKey
from railwright import protocol
from railwright.endpoint import Endpoint, RefusedError, UnreachableError
from railwright_agent.hardware import HardwareSources
from railwright_agent.reporting import ControllersClient, ReportRefusedError
from railwright_kube import leadership
from railwright_process import environment
from railwright_process.environment import SettingsError

REQUESTS = "railwright_heartbeat_requests_total"


@asynccontextmanager
async def replicas(
    tmp_path: Path, host: str = "127.0.0.1"
) -> AsyncIterator[tuple[Gangs, Gangs, Endpoint]]:
    """A replica that does not lead and one that does, and a launcher that knows the first."""
    key = SigningKey("key")
    standby, leader = Gangs(1, key), Gangs(1, key)
    standby.ready = False
    (tmp_path / "token").write_text(heartbeat_gangs.token(key, 0))
    try:
        pod = {"RAILWRIGHT_POD_IP": host}
        address = environment.reached_at(pod, await standby.start(host))
        standby.leader_address = environment.reached_at(pod, await leader.start(host))
        with closing(Endpoint(f"http://{address}", tmp_path / "token")) as launcher:
            yield standby, leader, launcher
    finally:
        await standby.server.stop()
        await leader.server.stop()


async def send(launcher: Endpoint, sequence: int) -> protocol.HeartbeatAnswer:
    heartbeat = heartbeat_gangs.heartbeat(0, sequence)
    return await asyncio.to_thread(
        launcher.post, "/v1/beat", heartbeat, kind=protocol.HeartbeatAnswer
    )


def count(replica: Gangs, status: int) -> float:
    path = "/v1/beat" if status == 200 else "none"
    return replica.total(REQUESTS, path=path, code=str(status))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_launcher_stays_with_the_leader(tmp_path: Path, host: str) -> None:
    async with replicas(tmp_path, host) as (standby, leader, launcher):
        for sequence in range(3):
            assert (await send(launcher, sequence)).order is protocol.Order.CONTINUE
        assert (count(standby, 307), count(leader, 200)) == (1, 3)


async def test_launcher_returns_to_the_service(tmp_path: Path) -> None:
    """The leader ends, and the standby leads from then on: no message is lost."""
    async with replicas(tmp_path) as (standby, leader, launcher):
        await send(launcher, 0)
        await leader.server.stop()
        standby.ready = True
        await send(launcher, 1)
        assert count(standby, 200) == 1


async def test_deposed_leader_keeps_no_launcher(tmp_path: Path) -> None:
    """It goes on answering, with 503."""
    async with replicas(tmp_path) as (standby, leader, launcher):
        await send(launcher, 0)
        leader.ready, standby.ready = False, True
        with pytest.raises(RefusedError, match="503"):
            await send(launcher, 1)
        await send(launcher, 2)
        assert count(standby, 200) == 1


async def test_leader_that_is_gone_is_tried_once(tmp_path: Path) -> None:
    async with replicas(tmp_path) as (standby, leader, launcher):
        await leader.server.stop()
        with pytest.raises(UnreachableError):
            await send(launcher, 0)
        standby.ready = True
        await send(launcher, 1)


async def test_no_redirect_is_followed_past_a_proxy(tmp_path: Path) -> None:
    """The leader's own address does not have the path of the proxy."""
    async with replicas(tmp_path) as (standby, leader, launcher):
        # As if the proxy had taken its path off.
        launcher._follows = Endpoint("http://proxy.example/path", tmp_path / "token")._follows
        with pytest.raises(RefusedError, match="307"):
            await send(launcher, 0)
        assert (count(standby, 307), count(leader, 200)) == (1, 0)


async def test_redirect_is_followed_once(tmp_path: Path) -> None:
    """Neither of two replicas leads yet, and each takes the other for the leader."""
    async with replicas(tmp_path) as (standby, other, launcher):
        other.ready, other.leader_address = False, standby.leader_address
        with pytest.raises(RefusedError, match="307 this replica does not lead") as refused:
            await send(launcher, 0)
        assert not refused.value.is_final
        other.ready = True
        await send(launcher, 1)
        assert (count(standby, 307), count(other, 307), count(other, 200)) == (2, 1, 1)


async def test_standby_that_knows_no_leader_refuses(tmp_path: Path) -> None:
    async with replicas(tmp_path) as (standby, _, launcher):
        standby.leader_address = ""
        with pytest.raises(RefusedError, match="503"):
            await send(launcher, 0)


async def test_redirect_without_address_is_no_answer(tmp_path: Path) -> None:
    async with replicas(tmp_path) as (standby, _, launcher):
        standby.leader_address = "nowhere"
        with pytest.raises(UnreachableError, match="expected a host and a port"):
            await send(launcher, 0)


async def test_agent_follows_a_redirect_once(tmp_path: Path) -> None:
    """The leader, an operator here, has read the message: it is no launcher's."""
    async with replicas(tmp_path) as (standby, _, launcher):
        url = f"http://{launcher._service.host}:{launcher._service.port}"
        agent = ControllersClient(url, tmp_path / "token", HardwareSources(tmp_path))
        with pytest.raises(ReportRefusedError, match=r"400.*member: missing"):
            await asyncio.to_thread(agent.post, "/v1/register", {}, 5.0)
        standby.leader_address = url.removeprefix("http://")
        with pytest.raises(ReportRefusedError, match="307"):
            await asyncio.to_thread(agent.post, "/v1/register", {}, 5.0)


@pytest.mark.parametrize(
    ("ip", "listens", "address"),
    [
        ("10.0.0.3", ("0.0.0.0", 8470), "10.0.0.3:8470"),
        ("fd00::3", ("::", 8470), "[fd00::3]:8470"),
        ("fd00::3", ("0.0.0.0", 8470), ""),
        ("10.0.0.3", ("0.0.0.0", 0), ""),
        ("", ("0.0.0.0", 8470), ""),
    ],
)
def test_address_of_a_replica(ip: str, listens: tuple[str, int], address: str) -> None:
    assert environment.reached_at({"RAILWRIGHT_POD_IP": ip}, listens) == address


def test_address_that_is_none_is_refused() -> None:
    with pytest.raises(SettingsError, match="RAILWRIGHT_POD_IP is 'here': expected an IP address"):
        environment.reached_at({"RAILWRIGHT_POD_IP": "here"}, ("0.0.0.0", 8470))


@pytest.mark.parametrize(
    ("stated", "address"),
    [
        ("one 10.0.0.3:8470", "10.0.0.3:8470"),
        ("one [fd00::3]:8470", "[fd00::3]:8470"),
        ("before 10.0.0.3:8470", ""),
        ("one ", ""),
        ("", ""),
        ("one 10.0.0.9:8470", ""),
        ("one example.com:8470", ""),
        ("one 10.0.0.3:8470\r\nX: y", ""),
        ("one 10.0.0.3:" + "1" * 65_536, ""),
    ],
)
def test_only_an_address_of_the_holder_counts(stated: str, address: str) -> None:
    """Whoever may write the Lease cannot put anything else into a response."""
    metadata = SimpleNamespace(annotations={leadership.ADDRESS: stated} if stated else None)
    lease = SimpleNamespace(metadata=metadata, spec=SimpleNamespace(holder_identity="one"))
    assert leadership._stated_address(lease, other_than="10.0.0.9:8470") == address
