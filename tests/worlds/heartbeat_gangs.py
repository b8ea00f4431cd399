"""A heartbeat server over gangs whose pods live, without an API server: for its cost and floods."""

from __future__ import annotations

import functools
import time

from prometheus_client import CollectorRegistry

from railwright import wire
from railwright_operator import metrics
from railwright_operator.heartbeats.agents import Agents
from railwright_operator.heartbeats.errands import Errands
from railwright_operator.heartbeats.hearing import HearingClock
from railwright_operator.heartbeats.server import HeartbeatServer
from railwright_operator.heartbeats.sessions import Sessions
from railwright_operator.heartbeats.tokens import Tokens
from railwright_operator.watch.pod_index import PodIndex
from railwright_operator.watch.records import PodRecord
from railwright_operator.write import pods
from worlds.tokens import KeyServer, SigningKey

GANG = 1024
PROCESSES = 8


def member(number: int) -> wire.Member:
    """A launcher of the gangs, by its number."""
    job, rank = divmod(number, GANG)
    return wire.Member(f"0b1f5a5e-0000-4000-8000-{job:012d}", 1, rank)


def pod_uid(number: int) -> str:
    """Of its pod."""
    return f"5a5e0b1f-0000-4000-8000-{number:012d}"


@functools.cache
def token(key: SigningKey, number: int) -> str:
    """What its kubelet mounted."""
    return key.token(pod_uid(number), pods.audience(member(number).job_uid))


def beat(number: int, sequence: int) -> wire.Beat:
    """One of a launcher whose ranks train."""
    return wire.Beat(
        member(number),
        sequence,
        running=PROCESSES,
        exited=0,
        progress=wire.Progress(1000 + sequence, 100_000, loss=2.345678, samples_per_s=1234.5),
        master_address="10.0.0.1",
        master_port=29500,
    )


class Gangs:
    """So many launchers in gangs of ``GANG``, their pods, and the server that they speak to."""

    def __init__(self, launchers: int, key: SigningKey) -> None:
        self.keys = KeyServer(key).published()
        self.registry = CollectorRegistry()
        self.hearing = HearingClock(time.monotonic)
        self.sessions = Sessions(clock=self.hearing, wake=lambda: None)
        self.index = PodIndex(lambda job_uid: None)
        self.records = {record.uid: record for record in map(_pod, range(launchers))}
        for record in self.records.values():
            self.index.change(None, record)
        for first in range(0, launchers, GANG):
            nodes = tuple(f"n{number}" for number in range(first, min(first + GANG, launchers)))
            uid = member(first).job_uid
            self.sessions.expect(uid, 1, nodes=nodes, num_processes=PROCESSES, resume=())
        self.ready = True
        self.server = self._server()

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> tuple[str, int]:
        """Read the keys and listen."""
        await self.keys.refresh()
        return await self.server.start(host, port)

    def total(self, name: str, **labels: str) -> float:
        """A count of the operator's."""
        return self.registry.get_sample_value(name, labels) or 0.0

    def _server(self) -> HeartbeatServer:
        series = metrics.build(self.registry).heartbeats

        def node_of(uid: str) -> str | None:
            record = self.records.get(uid)
            return None if record is None else record.node

        async def on_commit(job_uid: str, attempt: int, step: int) -> None:
            """Recorded at once."""

        async def on_inside(node: str, text: str) -> bool:
            return True

        return HeartbeatServer(
            self.sessions,
            Tokens(self.keys, node_of=node_of, metrics=series, clock=time.time),
            audience_of=pods.audience,
            pod_uid_of=self.index.uid_of,
            on_commit=on_commit,
            is_ready=lambda: self.ready and self.keys.known,
            hearing=self.hearing,
            metrics=series,
            agents=Agents(account="", on_inside=on_inside, errands=Errands(time.monotonic)),
            clock=time.monotonic,
        )


def _pod(number: int) -> PodRecord:
    its = member(number)
    return PodRecord(
        uid=pod_uid(number),
        namespace="team",
        name=f"pod-{number}",
        rv=1,
        node=f"n{number}",
        phase="Running",
        deleting=False,
        requests={},
        job_uid=its.job_uid,
        attempt=1,
        node_rank=its.node_rank,
    )
