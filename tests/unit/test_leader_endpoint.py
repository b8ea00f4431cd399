"""The leader is the endpoint of its Service, whoever wrote that before."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from railwright_kube import errors
from railwright_kube.client import Api
from railwright_process import leader_endpoint
from railwright_process.leader_endpoint import LeaderEndpoint


class Server:
    """The EndpointSlices of a namespace; the first requests can fail."""

    def __init__(self, *, failures: int = 0) -> None:
        self.stored: dict[str, Any] = {}
        self.asked: list[str] = []
        self.created = asyncio.Event()
        self._failures = failures

    async def get(self, path: str) -> Any:
        self.asked.append("get")
        if self._failures:
            self._failures -= 1
            raise errors.RequestFailed(path)
        if path not in self.stored:
            raise errors.NotFoundError(404, "NotFound", message=path)
        return self.stored[path]

    async def create(self, path: str, body: Any) -> None:
        self.asked.append("create")
        self.stored[f"{path}/{body['metadata']['name']}"] = body
        self.created.set()

    async def patch(self, path: str, body: Any) -> None:
        self.asked.append("patch")
        self.stored[path] |= body


def endpoint(server: Server, ip: str = "10.0.0.7") -> LeaderEndpoint:
    return LeaderEndpoint(
        cast(Api, server),
        service="railwright-operator",
        namespace="system",
        ip=ip,
        port_name="heartbeats",
        port=8470,
    )


@pytest.mark.parametrize(("ip", "kind"), [("10.0.0.7", "IPv4"), ("fd00::7", "IPv6")])
async def test_endpoint_is_of_the_service_and_written_once(ip: str, kind: str) -> None:
    server = Server()
    await endpoint(server, ip).write()
    await endpoint(server, ip).write()
    assert server.asked == ["get", "create", "get"]
    ((path, stored),) = server.stored.items()
    assert path.endswith(f"/namespaces/system/endpointslices/railwright-operator-{kind.lower()}")
    assert stored["metadata"]["labels"]["kubernetes.io/service-name"] == "railwright-operator"
    assert (stored["addressType"], stored["endpoints"][0]["addresses"]) == (kind, [ip])
    assert stored["ports"] == [{"name": "heartbeats", "port": 8470, "protocol": "TCP"}]


async def test_next_leader_takes_the_service() -> None:
    server = Server()
    await endpoint(server, "10.0.0.7").write()
    await endpoint(server, "10.0.0.8").write()
    (stored,) = server.stored.values()
    assert stored["endpoints"][0]["addresses"] == ["10.0.0.8"]


async def test_failed_write_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_endpoint, "INTERVAL_S", 0.0)
    server = Server(failures=2)
    running = asyncio.create_task(endpoint(server).run())
    async with asyncio.timeout(5):
        await server.created.wait()
    running.cancel()


async def test_process_outside_a_pod_writes_nothing() -> None:
    server = Server()
    await endpoint(server, "").run()
    assert not server.asked
