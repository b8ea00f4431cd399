"""Start and end a replica of a Deployment: its Lease, its client of the API server, its servers.
The ``__main__`` of the operator and of the controllers call it."""

from __future__ import annotations

import asyncio
import ctypes
import functools
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry

from railwright_kube.access import Access
from railwright_kube.client import Api
from railwright_kube.leadership import Leadership
from railwright_kube.metrics import ApiMetrics
from railwright_kube.server_clock import ServerClock
from railwright_kube.signing_keys import PublishedKeys
from railwright_kube.transport import HttpTransport
from railwright_process import garbage, json_log, lifecycle
from railwright_process.endpoints import Endpoints, Problems
from railwright_process.environment import ReplicaSettings, SettingsError
from railwright_process.metrics_server import MetricsServer
from railwright_process.process_metrics import ProcessMetrics
from railwright_process.server import MessageServer
from railwright_process.tls import Certificates

Chosen = TypeVar("Chosen", bound=ReplicaSettings)

RELEASE_S = 20.0
"""How long the release of the Lease may take when the process stops."""

PR_SET_DUMPABLE = 4
"""Of ``linux/prctl.h``."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """Monotonic seconds; seconds since 1970, which a process of a replica has by the API server's
    clock; and random sources for the jitter of retries. ``keep_objects`` is called once all lists
    were read."""

    clock: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], float] = time.time
    rng: Callable[[], Random] = Random
    keep_objects: Callable[[], None] = garbage.keep_for_good


def main(
    read: Callable[[Mapping[str, str]], Chosen], run: Callable[[Chosen], Coroutine[Any, Any, int]]
) -> int:
    """Run with the settings of the environment. Returns the exit code."""
    json_log.start()
    keep_memory_private()
    garbage.collect_rarely()
    try:
        chosen = read(os.environ)
    except SettingsError as error:
        print(error, file=sys.stderr)
        return lifecycle.EXIT_BAD_OPTION
    return asyncio.run(run(chosen))


def keep_memory_private() -> None:
    """Let no other process of this user read the memory, which has tokens and keys: a mapper runs
    as the operator does (``man 2 PR_SET_DUMPABLE``). Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


class Replica:
    """A replica with the Lease and the client of its process; only the holder of the Lease may
    write."""

    def __init__(
        self, chosen: ReplicaSettings, lease: str, registry: CollectorRegistry, metrics: ApiMetrics
    ) -> None:
        loop, self.kubeconfig = asyncio.get_running_loop(), os.environ.get("KUBECONFIG") or None
        server_clock = ServerClock(time.monotonic, wall_s=time.time())
        self.runtime = runtime = Runtime(wall_clock=server_clock)
        self._chosen, self._registry = chosen, registry
        self._stop, self._leading, self._lost = asyncio.Event(), asyncio.Event(), asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop.set)
        self.leadership = Leadership(
            self.kubeconfig,
            namespace=chosen.namespace,
            name=lease,
            identity=chosen.identity,
            address=chosen.reached_at,
            on_gained=functools.partial(loop.call_soon_threadsafe, self._leading.set),
            on_lost=functools.partial(loop.call_soon_threadsafe, self._lost.set),
            clock=runtime.clock,
            rng=runtime.rng(),
        )
        self._metrics = ProcessMetrics(registry, deployment=lease, is_leader=self.leadership.held)
        self.api = Api(
            HttpTransport(self.kubeconfig, server_clock),
            may_write=self.leadership.held,
            metrics=metrics,
            clock=runtime.clock,
            rng=runtime.rng(),
        )

    async def run(
        self,
        server: MessageServer,
        work: Callable[[asyncio.Event], Coroutine[Any, Any, None]],
        *,
        certificates: Certificates,
        keys: PublishedKeys,
        alive: Problems,
        ready: Problems,
    ) -> int:
        """Serve and work until a signal or until leadership is lost; ``work`` gets an event that is
        set once this process leads. Returns the exit code."""
        probes = Endpoints(alive=alive, ready=ready)
        await probes.start(*self._chosen.probe_address)
        metrics = MetricsServer(
            self._registry,
            Access(self.api, keys=keys, clock=self.runtime.clock).status,
            tls=certificates.context if certificates.encrypts else None,
            requests=self._metrics.requests,
        )
        await metrics.start(*self._chosen.metrics_address)
        await server.start(*self._chosen.address)
        self.leadership.start()
        lag = asyncio.create_task(self._metrics.measure_lag(self.runtime.clock))
        try:
            return await lifecycle.until_ended(self._stop, self._lost, work(self._leading))
        finally:
            lifecycle.end_in_time()
            lag.cancel()
            await server.stop()
            await metrics.stop()
            await probes.stop()
            await asyncio.to_thread(self.leadership.stop, deadline_s=RELEASE_S)
