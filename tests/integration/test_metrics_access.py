"""Who may read the metrics of the operator and the controllers, by a real API server."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from fixtures import shell, tokens
from integration import access_reviews
from railwright_kube.access import KEPT_S, OUTAGE_S, Access
from railwright_kube.signing_keys import PublishedKeys
from railwright_process import authority, tls
from railwright_process.metrics_server import MetricsServer
from railwright_process.process_metrics import ProcessMetrics
from railwright_process.tls import Certificates
from railwright_testbed import ControlPlane, waiting
from railwright_testbed.api_client import ApiClient

RIGHTS = Path(__file__).resolve().parents[2] / "deploy/rights"
FILES = ("namespace.yaml", "operator.yaml", "controllers.yaml", "metrics.yaml")
OWN, READER, HOST = "railwright-system", "railwright-metrics", "127.0.0.1"
OPERATOR, CONTROLLERS = "railwright-operator", "railwright-controllers"
LIFE_S = 3600
GET_METRICS = {"nonResourceAttributes": {"path": "/metrics", "verb": "get"}}


class Clock:
    """Monotonic seconds that a test moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Server:
    """The metrics of a replica."""

    url: str
    certificates: Certificates
    clock: Clock

    async def status(self, token: str, *, trusted: str = "") -> int:
        """The status of a request with this token. Raises ClientError."""
        context = ssl.create_default_context(cadata=trusted or self.certificates.authorities())
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with (
            aiohttp.ClientSession(self.url, headers=headers) as http,
            http.get("/metrics", ssl=context) as answer,
        ):
            return answer.status


@asynccontextmanager
async def serving(
    plane: ControlPlane, service_account: str = OPERATOR, *, leads: bool = True
) -> AsyncIterator[Server]:
    """A replica with the rights of its account and no others."""
    kubeconfig = await asyncio.to_thread(plane.kubeconfig_for_service_account, OWN, service_account)
    async with shell.api(str(kubeconfig), may_write=lambda: leads) as api:
        clock = Clock()
        certificates = Certificates(
            api,
            f"https://{HOST}:8470",
            namespace=OWN,
            name=f"{service_account}-tls",
            may_write=lambda: leads,
            clock=clock,
            wall_clock=time.time,
            rng=lambda: Random(0),
        )
        await certificates.refresh()
        keys = PublishedKeys(api, clock=clock, rng=Random(0))
        await keys.refresh()
        registry = CollectorRegistry()
        series = ProcessMetrics(registry, deployment=service_account, is_leader=lambda: leads)
        server = MetricsServer(
            registry,
            Access(api, keys=keys, clock=clock).status,
            tls=certificates.context,
            requests=series.requests,
        )
        _, port = await server.start(HOST, 0)
        try:
            yield Server(f"https://{HOST}:{port}", certificates, clock)
        finally:
            await server.stop()


Issue = Callable[..., str]


@pytest.fixture
def issue(control_plane: ControlPlane, admin: ApiClient) -> Issue:
    """Makes a token of an account, once the rights are in force."""
    for name in FILES:
        control_plane.kubectl("apply", "-f", str(RIGHTS / name))

    def may(service_account: str, request: dict[str, Any]) -> bool:
        user = f"system:serviceaccount:{OWN}:{service_account}"
        return access_reviews.is_allowed(admin, user, request)

    review = {"verb": "create", "group": "authorization.k8s.io", "resource": "subjectaccessreviews"}
    waiting.until(
        lambda: (
            may(READER, GET_METRICS)
            and all(may(each, {"resourceAttributes": review}) for each in (OPERATOR, CONTROLLERS))
        ),
        "the rights in force",
        deadline_s=20,
    )

    def token(service_account: str = READER, namespace: str = OWN, **spec: Any) -> str:
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}/token"
        answer = admin.post(path, {"spec": {"expirationSeconds": LIFE_S} | spec})
        return str(answer["status"]["token"])

    return token


@pytest.mark.parametrize("service_account", [OPERATOR, CONTROLLERS])
async def test_only_a_valid_token_with_the_right_is_taken(
    control_plane: ControlPlane,
    admin: ApiClient,
    namespace: str,
    issue: Issue,
    service_account: str,
) -> None:
    reader, key = issue(), control_plane.signing_key
    await asyncio.to_thread(_until_account, admin, namespace)
    pod = admin.post(f"/api/v1/namespaces/{namespace}/pods", shell.pod("p"))["metadata"]
    bound = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod["uid"]}
    async with serving(control_plane, service_account) as server:
        assert {
            "reader": await server.status(reader),
            "reader, a minute old": await server.status(tokens.aged(reader, key, by_s=60)),
            "expired": await server.status(tokens.aged(reader, key, by_s=LIFE_S + 60)),
            "of another audience": await server.status(issue(audiences=["railwright.dev"])),
            "forged": await server.status(f"{reader[:-8]}AAAAAAAA"),
            "none": await server.status(""),
            "no token": await server.status("token"),
            "of a process": await server.status(issue(service_account)),
            "of a pod": await server.status(issue("default", namespace, boundObjectRef=bound)),
        } == {
            "reader": 200,
            "reader, a minute old": 200,
            "expired": 401,
            "of another audience": 401,
            "forged": 401,
            "none": 401,
            "no token": 401,
            "of a process": 403,
            "of a pod": 403,
        }


async def test_stored_token_is_one_of_the_reader(
    control_plane: ControlPlane, admin: ApiClient, issue: Issue
) -> None:
    """That of the Secret, also at a standby, which may not write."""
    path = f"/api/v1/namespaces/{OWN}/secrets/{READER}"

    def stored() -> str:
        return base64.b64decode(admin.get(path).get("data", {}).get("token", "")).decode()

    await shell.until(stored, "the token", deadline_s=20)
    async with serving(control_plane) as leader, serving(control_plane, leads=False) as standby:
        assert await leader.status(stored()) == 200
        assert await standby.status(stored()) == 200


async def test_right_that_is_taken_away_ends_access(
    control_plane: ControlPlane, admin: ApiClient, issue: Issue
) -> None:
    """When its answer is too old to be used."""
    reader = issue()
    binding = f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{READER}"
    user = f"system:serviceaccount:{OWN}:{READER}"
    async with serving(control_plane) as server:
        assert await server.status(reader) == 200
        admin.delete(binding)
        await shell.until(
            lambda: not access_reviews.is_allowed(admin, user, GET_METRICS), "the end of the right"
        )
        assert await server.status(reader) == 200
        server.clock.now_s += KEPT_S
        assert await server.status(reader) == 403


async def test_replaced_authority_signs_for_new_connections(
    control_plane: ControlPlane, issue: Issue
) -> None:
    reader = issue()
    async with serving(control_plane) as server:
        assert await server.status(reader) == 200
        before = server.certificates.authorities()
        made = authority.new(HOST, time.time())
        values = {tls.CERTIFICATE: made.certificate, tls.KEY: made.key, tls.TRUSTED: made.trusted}
        data = {name: base64.b64encode(value).decode() for name, value in values.items()}
        patch = ("patch", "secret", f"{OPERATOR}-tls", "--patch", json.dumps({"data": data}))
        await asyncio.to_thread(control_plane.kubectl, "-n", OWN, *patch)
        await server.certificates.refresh()
        assert server.certificates.authorities() == made.trusted.decode()
        assert await server.status(reader) == 200
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await server.status(reader, trusted=before)


async def test_reader_goes_on_while_the_api_server_is_away(
    control_plane: ControlPlane, issue: Issue
) -> None:
    reader, other, new = issue(), issue(OPERATOR), issue()
    assert new != reader
    async with serving(control_plane) as server:
        assert await server.status(reader) == 200
        assert await server.status(other) == 403
        await asyncio.to_thread(control_plane.stop_api_server)
        try:
            server.clock.now_s += KEPT_S
            found = await asyncio.gather(*map(server.status, (reader, other, new)))
            assert found == [200, 503, 503]
            server.clock.now_s += OUTAGE_S - KEPT_S
            assert await server.status(reader) == 503
        finally:
            await asyncio.to_thread(control_plane.start_api_server)
        statuses = [await server.status(each) for each in (reader, other, new)]
        assert statuses == [200, 403, 200]


def _until_account(admin: ApiClient, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    waiting.until(lambda: admin.get(path)["items"], "the account of pods", deadline_s=20)
