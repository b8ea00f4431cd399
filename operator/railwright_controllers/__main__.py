"""``railwright-controllers``: configuration from the environment, JSON log lines, then run."""

from __future__ import annotations

import asyncio
import logging
import sys

from prometheus_client import CollectorRegistry

from railwright_controllers import metrics, settings
from railwright_controllers.handlers import KopfThread
from railwright_controllers.report.fabric_metrics import FabricMetrics
from railwright_controllers.wiring import ControllerParts
from railwright_kube.leadership import Leadership
from railwright_process import replica
from railwright_process.environment import ReplicaSettings
from railwright_process.replica import Replica

LEASE = "railwright-controllers"
STUCK_S = 120.0
"""A holder of the Lease that completes no report of the Fabric for this long reports itself as not
alive, to be restarted."""


def main() -> int:
    """Run until a signal or until leadership is lost. Returns the exit code."""
    logging.getLogger("kopf").setLevel(logging.WARNING)
    return replica.main(settings.from_environment, _run)


async def _run(chosen: ReplicaSettings) -> int:
    registry, loop = CollectorRegistry(), asyncio.get_running_loop()
    series = metrics.ControllerMetrics(registry)
    process = Replica(chosen, LEASE, registry, series.api)
    leadership, runtime = process.leadership, process.runtime
    async with process.api as api:
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
            process.kubeconfig,
            lambda *news: loop.call_soon_threadsafe(informers.fabrics.seen, *news),
            clock=runtime.clock,
            rng=runtime.rng(),
        )
        try:
            return await process.run(
                parts.server,
                lambda leading: parts.run(leading, kopf.start),
                certificates=parts.certificates,
                keys=parts.keys,
                alive=lambda: _stuck(parts, leadership),
                ready=parts.unready,
            )
        finally:
            await asyncio.to_thread(kopf.stop, deadline_s=5.0)


def _stuck(parts: ControllerParts, leadership: Leadership) -> list[str]:
    age_s = parts.fabric_reporter.completed_age_s()
    if leadership.held() and not parts.unsynced() and age_s > STUCK_S:
        return [f"no report of the Fabric was completed for {age_s:.0f} s"]
    return []


if __name__ == "__main__":
    sys.exit(main())
