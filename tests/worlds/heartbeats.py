"""A heartbeat server over a real API server, with pods whose tokens are real."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import aiohttp
import orjson
from prometheus_client import CollectorRegistry

from railwright import wire
from railwright_operator import metrics
from railwright_operator.heartbeats.agents import Agents
from railwright_operator.heartbeats.errands import Errands
from railwright_operator.heartbeats.hearing import HearingClock
from railwright_operator.heartbeats.keys import PublishedKeys
from railwright_operator.heartbeats.server import HeartbeatServer
from railwright_operator.heartbeats.sessions import Sessions
from railwright_operator.heartbeats.tokens import Tokens
from railwright_operator.kube import bodies, paths
from railwright_operator.kube.client import Api
from railwright_operator.kube.errors import AlreadyExistsError
from railwright_topology.sources import insides
from railwright_topology.sources.insides import Document
from worlds import shell

AGENT = "railwright-agent"
JOB = "0b1f5a5e-0000-4000-8000-000000000001"
ATTEMPT = 1
TOKEN_LIFE_S = 600
"""The shortest that an API server gives."""


_numbers = itertools.count(1)


def audience(job_uid: str) -> str:
    return f"railwright.dev/{job_uid}"


@dataclass
class Heartbeats:
    """A job of two nodes, its pods by node rank, and what commits were recorded.

    While ``records`` is not set, no commit is.
    """

    api: Api
    namespace: str
    registry: CollectorRegistry
    sessions: Sessions
    http: aiohttp.ClientSession
    pods: dict[int, str] = field(default_factory=dict)
    commits: list[tuple[str, int, int]] = field(default_factory=list)
    commit_error: Exception | None = None
    records: asyncio.Event = field(default_factory=asyncio.Event)
    revokes_while_committing: bool = False
    leads: bool = True
    node_of: dict[str, str] = field(default_factory=dict)
    """The node of each pod that lives, by UID."""
    nodes: set[str] = field(default_factory=set)
    errands: Errands = field(default_factory=lambda: Errands(time.monotonic))
    insides: dict[str, Document] = field(default_factory=dict)
    """Of nodes that are known, what their agents said."""
    address: tuple[str, int] = ("", 0)

    def pod_uid_of(self, job_uid: str, attempt: int, node_rank: int) -> str | None:
        return self.pods.get(node_rank) if (job_uid, attempt) == (JOB, ATTEMPT) else None

    async def on_commit(self, job_uid: str, attempt: int, step: int) -> None:
        if self.commit_error is not None:
            raise self.commit_error
        await self.records.wait()
        if self.revokes_while_committing:
            self.sessions.revoke(job_uid, attempt)
        self.commits.append((job_uid, attempt, step))

    async def on_inside(self, node: str, text: str) -> bool:
        document = insides.parse(text)
        if node in self.nodes:
            self.insides[node] = document
        return node in self.nodes

    @property
    def account(self) -> str:
        return f"system:serviceaccount:{self.namespace}:{AGENT}"

    async def agents_token(
        self, node: str, *, audience: str = "railwright.dev", account: str = AGENT
    ) -> str:
        """A token of an agent's pod on this node, as the kubelet would mount it."""
        with contextlib.suppress(AlreadyExistsError):
            await self.api.create(
                f"/api/v1/namespaces/{self.namespace}/serviceaccounts",
                {"metadata": {"name": account}},
            )
        pod = shell.pod(f"agent-{next(_numbers)}")
        pod["spec"] |= {"serviceAccountName": account} | ({"nodeName": node} if node else {})
        made = await self.api.create(paths.pods(self.namespace), pod)
        name, uid = made["metadata"]["name"], made["metadata"]["uid"]
        self.node_of[uid] = node
        spec = {
            "audiences": [audience],
            "expirationSeconds": TOKEN_LIFE_S,
            "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": name, "uid": uid},
        }
        return await self.token_of(spec, account=account)

    async def token(self, pod: str, uid: str, *, audience_of: str = JOB) -> str:
        """A token bound to this pod, as the kubelet would mount it."""
        spec = {
            "audiences": [audience(audience_of)],
            "expirationSeconds": TOKEN_LIFE_S,
            "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": pod, "uid": uid},
        }
        return await self.token_of(spec)

    async def token_of(self, spec: dict[str, Any], *, account: str = "default") -> str:
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{account}/token"
        return str((await self.api.create(path, {"spec": spec}))["status"]["token"])

    async def make_pod(self, name: str) -> str:
        made = await self.api.create(paths.pods(self.namespace), shell.pod(name))
        uid = str(made["metadata"]["uid"])
        self.node_of[uid] = ""
        return uid

    async def delete_pod(self, name: str, uid: str) -> None:
        place = paths.pod(self.namespace, name)
        await self.api.delete(place, bodies.deletion(uid) | {"gracePeriodSeconds": 0})
        del self.node_of[uid]

    async def say(self, path: str, token: str, message: object) -> tuple[int, dict[str, Any]]:
        """POST a message, or raw bytes; the status and the answer."""
        data = message if isinstance(message, bytes) else wire.encode(message)
        return await self.post(path, data, Authorization=f"Bearer {token}")

    async def post(self, path: str, data: Any, **headers: str) -> tuple[int, dict[str, Any]]:
        url = f"http://{self.address[0]}:{self.address[1]}{path}"
        async with self.http.post(url, data=data, headers=headers) as answer:
            return answer.status, orjson.loads(await answer.read())

    def checks(self, outcome: str) -> float:
        """How many tokens were verified, or refused, so."""
        labels = {"outcome": outcome}
        return self.registry.get_sample_value("railwright_token_checks_total", labels) or 0.0


@asynccontextmanager
async def listening(api: Api, namespace: str) -> AsyncIterator[Heartbeats]:
    """A server that expects attempt 1 of a job of two nodes, whose pods exist; it has read the
    signing keys."""
    registry = CollectorRegistry()
    series = metrics.build(registry).heartbeats
    sessions = Sessions(clock=time.monotonic, wake=lambda: None)
    sessions.expect(JOB, ATTEMPT, nodes=("n0", "n1"), num_processes=1, resume=())
    await shell.allow_pods(api, namespace)
    async with aiohttp.ClientSession() as http:
        world = Heartbeats(api, namespace, registry, sessions, http)
        world.records.set()
        world.pods = {rank: await world.make_pod(f"pod-{rank}") for rank in (0, 1)}
        keys = PublishedKeys(api, clock=time.monotonic, rng=Random(0))
        assert await keys.refresh()
        server = HeartbeatServer(
            sessions,
            Tokens(keys, node_of=world.node_of.get, metrics=series, clock=time.time),
            audience_of=audience,
            pod_uid_of=world.pod_uid_of,
            on_commit=world.on_commit,
            is_ready=lambda: world.leads,
            hearing=HearingClock(time.monotonic),
            metrics=series,
            agents=Agents(account=world.account, on_inside=world.on_inside, errands=world.errands),
            clock=time.monotonic,
        )
        world.address = await server.start("127.0.0.1", 0)
        try:
            yield world
        finally:
            await server.stop()
