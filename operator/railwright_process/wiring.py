"""Construct the parts that the operator and the controllers both have: certificates, keys, and the
server for messages of pods."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from railwright_kube.client import Api
from railwright_kube.reflector import Reflector
from railwright_kube.signing_keys import PublishedKeys
from railwright_kube.tokens import Tokens
from railwright_process.connections import Route
from railwright_process.environment import ReplicaSettings
from railwright_process.replica import Runtime
from railwright_process.server import MessageServer
from railwright_process.server_metrics import ServerMetrics
from railwright_process.tls import Certificates

Run = Callable[[], Coroutine[Any, Any, None]]


class BoundPod(Protocol):
    """What the record of a pod has: the node that it is bound to, and whether it has ended."""

    @property
    def node(self) -> str: ...
    @property
    def terminal(self) -> bool: ...


@dataclass(eq=False)
class ReplicaParts:
    """The parts that both processes have. Those of one process are constructed in order; nothing
    runs yet."""

    api: Api
    runtime: Runtime
    settings: ReplicaSettings
    is_leader: Callable[[], bool]
    leader_address: Callable[[], str]

    def construct_credentials(self, authority: str) -> None:
        """Construct the certificates, whose authority is in this Secret, and the keys of tokens."""
        clock, rng = self.runtime.clock, self.runtime.rng
        self.certificates = Certificates(
            self.api,
            self.settings.url,
            namespace=self.settings.namespace,
            name=authority,
            may_write=self.is_leader,
            clock=clock,
            wall_clock=self.runtime.wall_clock,
            rng=rng,
        )
        self.keys = PublishedKeys(self.api, clock=clock, rng=rng())

    def construct_tasks(self, *informers: Reflector[Any]) -> None:
        """``tasks`` run from the start: those of these informers, of keys and of certificates."""
        self._informers = informers
        self.tasks: tuple[Run, ...] = (*(each.run for each in informers), self.keys.run)
        if self.certificates.encrypts:
            self.tasks += (self.certificates.run,)

    def construct_server(
        self,
        routes: Mapping[str, Route],
        pods: Mapping[str, BoundPod],
        metrics: ServerMetrics,
        *,
        is_ready: Callable[[], bool],
        on_tick: Callable[[bool], None] = lambda is_queue_full: None,
    ) -> None:
        """Construct the server for messages of these pods, which have a node until they end."""

        def node_of(uid: str) -> str | None:
            pod = pods.get(uid)
            return None if pod is None or pod.terminal else pod.node

        self.server = MessageServer(
            routes,
            Tokens(
                self.keys,
                node_of=node_of,
                checks=metrics.token_checks,
                clock=self.runtime.wall_clock,
            ),
            is_ready=is_ready,
            leader_address=self.leader_address,
            tls=self.certificates.context if self.certificates.encrypts else None,
            metrics=metrics,
            clock=self.runtime.clock,
            on_tick=on_tick,
        )

    def unsynced(self) -> list[str]:
        """The informers without a whole list."""
        return [repr(informer) for informer in self._informers if not informer.synced]

    def unready(self) -> list[str]:
        """What is missing until this replica could lead, a sentence each."""
        missing = [f"{informer} has no whole list yet" for informer in self.unsynced()]
        if not self.keys.available:
            missing.append("the signing keys of tokens have not been read yet")
        if self.certificates.missing:
            missing.append(self.certificates.missing)
        return missing
