"""``railwright-controllers``: configuration from the environment, JSON log lines, then run."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import signal
import sys

from prometheus_client import CollectorRegistry

from railwright_controllers import metrics, settings
from railwright_controllers.handlers import KopfThread
from railwright_controllers.report.fabric_metrics import FabricMetrics
from railwright_controllers.wiring import ControllerParts, ControllerRuntime
from railwright_kube.client import Api
from railwright_kube.leadership import Leadership
from railwright_kube.transport import HttpTransport
from railwright_process import garbage, json_log, lifecycle
from railwright_process.endpoints import Endpoints
from railwright_process.environment import ReplicaSettings, SettingsError
from railwright_process.process_metrics import ProcessMetrics

LEASE = "railwright-controllers"
STUCK_S = 120.0
"""A holder of the Lease that completes no report of the Fabric for this long reports itself as not
alive, to be restarted."""

RELEASE_S = 20.0
"""How long the release of the Lease may take."""


def main() -> int:
    """Run until a signal or until leadership is lost. Returns the exit code."""
    json_log.start()
    logging.getLogger("kopf").setLevel(logging.WARNING)
    garbage.collect_rarely()
    try:
        chosen = settings.from_environment(os.environ)
    except SettingsError as error:
        print(error, file=sys.stderr)
        return lifecycle.EXIT_BAD_OPTION
    return asyncio.run(_run(chosen))


async def _run(chosen: ReplicaSettings) -> int:
    kubeconfig = os.environ.get("KUBECONFIG") or None
    runtime, registry, loop = ControllerRuntime(), CollectorRegistry(), asyncio.get_running_loop()
    series = metrics.ControllerMetrics(registry)
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
        parts = ControllerParts(
            api,
            runtime,
            chosen,
            series=series,
            is_leader=leadership.held,
            leader_address=leadership.leader_address,
        )
        informers = parts.informers
        FabricMetrics(
            registry, cache=informers.fabric, healths=lambda: informers.healths.records.values()
        )
        kopf = KopfThread(
            kubeconfig,
            lambda *news: loop.call_soon_threadsafe(informers.fabrics.seen, *news),
            clock=runtime.clock,
            rng=runtime.rng(),
        )
        probes = Endpoints(
            alive=lambda: _stuck(parts, leadership),
            ready=lambda: _unready(parts),
            registry=registry,
        )
        await probes.start(*chosen.probe_address)
        await parts.server.start(*chosen.address)
        leadership.start()
        try:
            return await lifecycle.until_ended(stop, lost, parts.run(leading, kopf.start))
        finally:
            lifecycle.end_in_time()
            await parts.server.stop()
            await probes.stop()
            await asyncio.to_thread(leadership.stop, deadline_s=RELEASE_S)
            await asyncio.to_thread(kopf.stop, deadline_s=5.0)


def _stuck(parts: ControllerParts, leadership: Leadership) -> list[str]:
    age_s = parts.fabric_reporter.completed_age_s()
    if leadership.held() and not parts.unsynced() and age_s > STUCK_S:
        return [f"no report of the Fabric was completed for {age_s:.0f} s"]
    return []


def _unready(parts: ControllerParts) -> list[str]:
    missing = [f"{informer} has no whole list yet" for informer in parts.unsynced()]
    if not parts.keys.available:
        missing.append("the signing keys of tokens have not been read yet")
    if parts.certificates.missing:
        missing.append(parts.certificates.missing)
    return missing


if __name__ == "__main__":
    sys.exit(main())
