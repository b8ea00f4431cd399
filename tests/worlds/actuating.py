"""An actuator over a server that answers each request as a test says."""

from __future__ import annotations

import asyncio
import copy
from random import Random
from typing import Any, cast

import orjson
from prometheus_client import CollectorRegistry

from railwright_operator import metrics
from railwright_operator.kube.client import Api
from railwright_operator.watch import excerpts, records
from railwright_operator.watch.excerpts import Pod
from railwright_operator.watch.records import PodRecord
from railwright_operator.watch.reflector import Reflector
from railwright_operator.write import pods
from railwright_operator.write.actuate import Actuator
from railwright_scheduler.attempt.gang import Action
from worlds import attempts
from worlds.jobs import GPU

STEPS = 20
"""So many turns of the loop are more than any action takes once it has its answers."""

ENTRY = attempts.entry()
LAUNCHER = pods.Launcher("launcher", "http://operator")


def raw_pod(*, uid: str = "u10", owner: str = "a", node: str = "", gpus: str = "8") -> Any:
    """Rank 0 of attempt 1 as the API server answers it."""
    container = {"name": "m", "command": ["train"]}
    spec = {"numNodes": 2, "template": {"spec": {"containers": [container]}}}
    job = {"metadata": {"name": "a"}, "spec": spec}
    entry = attempts.entry(job_uid=owner)
    made = copy.deepcopy(dict(pods.render(job, entry, node_rank=0, launcher=LAUNCHER)))
    made["metadata"] |= {"uid": uid, "resourceVersion": "7"}
    made["spec"]["nodeName"] = node
    made["spec"]["containers"][0]["resources"] = {"requests": {GPU: gpus}}
    return made


class Server:
    """Answers each verb with what a test put there: an object, an error, or a wait."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {"create": raw_pod(), "get": raw_pod(), "delete": {}}
        self.asked: list[str] = []
        self.bodies: list[Any] = []
        self.held = asyncio.Event()
        self.held.set()

    async def _answer(self, verb: str) -> Any:
        self.asked.append(verb)
        await self.held.wait()
        answer = self.answers[verb]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def create(self, path: str, body: object) -> Any:
        self.bodies.append(body)
        return await self._answer("create")

    async def get(self, path: str, **named: Any) -> Any:
        if "decode" not in named:
            return await self._answer("get")
        return named["decode"](orjson.dumps(await self._answer("list")))

    async def delete(self, path: str, body: object) -> Any:
        self.bodies.append(body)
        return await self._answer("delete")


class Shell:
    """An actuator over that server, with a clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.woken = 0
        self.server = Server()
        api = cast(Api, self.server)
        self.pods: Reflector[PodRecord] = Reflector(
            api,
            "/api/v1/pods",
            excerpt=excerpts.of(Pod),
            parse=records.pod,
            on_change=lambda old, new: None,
            lasting=records.still_bound,
            metrics=metrics.build(CollectorRegistry()).watch,
            clock=lambda: self.now_s,
            rng=Random(0),
        )
        self.actuator = Actuator(
            api,
            pods=self.pods,
            render_pod=lambda entry, rank: {"metadata": {"name": f"a-1-{rank}"}},
            render_placement=lambda entry: {"metadata": {"name": "a-1"}},
            wake=self._wake,
            clock=lambda: self.now_s,
            rng=Random(0),
        )

    def _wake(self) -> None:
        self.woken += 1

    async def do(self, *actions: Action) -> list[str]:
        """Carry them out; the verbs that this asked of the server."""
        before = len(self.server.asked)
        self.actuator.turn_begins()
        self.actuator.start(actions)
        await settled()
        return self.server.asked[before:]

    @property
    def told(self) -> tuple[str | None, str]:
        """The refusal and the hindrance of the attempt."""
        return self.actuator.refusal(ENTRY.key), self.actuator.hindrance(ENTRY.key)


async def settled() -> None:
    for _ in range(STEPS):
        await asyncio.sleep(0)
