"""``railwright-operator``: configuration from the environment, JSON log lines, then run."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import sys
from collections.abc import Iterator

from prometheus_client import CollectorRegistry

from railwright_kube.client import Api
from railwright_kube.leadership import Leadership
from railwright_kube.transport import HttpTransport
from railwright_operator import metrics, settings
from railwright_operator.settings import Settings
from railwright_operator.wiring import OperatorParts, Runtime
from railwright_operator.write import hang_mark
from railwright_process import garbage, json_log, lifecycle
from railwright_process.endpoints import Endpoints
from railwright_process.environment import SettingsError
from railwright_process.process_metrics import ProcessMetrics

LEASE = "railwright-operator"
STUCK_S = 60.0
"""A leader that completes no cycle for this long reports itself as not alive, to be restarted."""

RELEASE_S, GIVE_UP_S = 20.0, 2.0
"""How long the release of the Lease may take: when the process stops, when its cycle hangs."""


def main() -> int:
    """Run until a signal or until leadership is lost. Returns the exit code."""
    json_log.start()
    garbage.collect_rarely()
    try:
        chosen = settings.from_environment(os.environ)
    except SettingsError as error:
        print(error, file=sys.stderr)
        return lifecycle.EXIT_BAD_OPTION
    return asyncio.run(_run(chosen))


async def _run(chosen: Settings) -> int:
    kubeconfig, runtime = os.environ.get("KUBECONFIG") or None, Runtime()
    registry = CollectorRegistry()
    series = metrics.Metrics(registry)
    loop = asyncio.get_running_loop()
    stop, leading, lost = asyncio.Event(), asyncio.Event(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    leadership = Leadership(
        kubeconfig,
        namespace=chosen.namespace,
        name=LEASE,
        identity=chosen.identity,
        address=chosen.reached_at,
        on_gained=functools.partial(loop.call_soon_threadsafe, leading.set),
        on_lost=functools.partial(loop.call_soon_threadsafe, lost.set),
        clock=runtime.clock,
        rng=runtime.rng(),
    )
    ProcessMetrics(registry, deployment=LEASE, is_leader=leadership.held)
    async with Api(
        HttpTransport(kubeconfig),
        may_write=leadership.held,
        metrics=series.api,
        clock=runtime.clock,
        rng=runtime.rng(),
    ) as api:
        parts = OperatorParts(
            api,
            runtime,
            chosen,
            registry=registry,
            series=series,
            is_leader=leadership.held,
            leader_address=leadership.leader_address,
            mark_hung=functools.partial(hang_mark.write, kubeconfig),
            give_up_lease=functools.partial(leadership.stop, deadline_s=GIVE_UP_S),
        )
        probes = Endpoints(
            alive=lambda: _stuck(parts, leadership),
            ready=lambda: [*_unready(parts)],
            registry=registry,
        )
        await probes.start(*chosen.probe_address)
        await parts.server.start(*chosen.address)
        leadership.start()
        parts.watchdog.start()
        try:
            return await lifecycle.until_ended(stop, lost, parts.run(leading))
        finally:
            parts.watchdog.stop()
            lifecycle.end_in_time()
            await parts.server.stop()
            await probes.stop()
            await asyncio.to_thread(leadership.stop, deadline_s=RELEASE_S)


def _stuck(parts: OperatorParts, leadership: Leadership) -> list[str]:
    age_s = parts.cycle.completed_age_s()
    if leadership.held() and age_s > STUCK_S and not parts.certificates.missing:
        return [f"no scheduling cycle was completed for {age_s:.0f} s"]
    return []


def _unready(parts: OperatorParts) -> Iterator[str]:
    if not parts.keys.available:
        yield "the signing keys of tokens have not been read yet"
    if parts.certificates.missing:
        yield parts.certificates.missing
    yield from (
        f"{informer!r} has no whole list yet"
        for informer in parts.informers.warm
        if not informer.synced
    )


if __name__ == "__main__":
    sys.exit(main())
