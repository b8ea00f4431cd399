"""``railwright-operator``: configuration from the environment, JSON log lines, then run."""

from __future__ import annotations

import asyncio
import functools
import sys

from prometheus_client import CollectorRegistry

from railwright_kube.leadership import Leadership
from railwright_operator import metrics, settings
from railwright_operator.settings import Settings
from railwright_operator.wiring import OperatorParts
from railwright_operator.write import hang_mark
from railwright_process import replica
from railwright_process.replica import Replica

LEASE = "railwright-operator"
STUCK_S = 60.0
"""A leader that completes no cycle for this long reports itself as not alive, to be restarted."""

GIVE_UP_S = 2.0
"""How long the release of the Lease may take when the cycle hangs."""


def main() -> int:
    """Run until a signal or until leadership is lost. Returns the exit code."""
    return replica.main(settings.from_environment, _run)


async def _run(chosen: Settings) -> int:
    registry = CollectorRegistry()
    series = metrics.Metrics(registry)
    process = Replica(chosen, LEASE, registry, series.api)
    leadership, mark = process.leadership, functools.partial(hang_mark.write, process.kubeconfig)
    async with process.api as api:
        parts = OperatorParts(
            api,
            process.runtime,
            chosen,
            registry=registry,
            series=series,
            is_leader=leadership.held,
            leader_address=leadership.leader_address,
            mark_hung=mark,
            give_up_lease=functools.partial(leadership.stop, deadline_s=GIVE_UP_S),
        )
        return await process.run(
            parts.server,
            functools.partial(_work, parts),
            certificates=parts.certificates,
            keys=parts.keys,
            alive=lambda: _stuck(parts, leadership),
            ready=parts.unready,
        )


async def _work(parts: OperatorParts, leading: asyncio.Event) -> None:
    parts.watchdog.start()
    try:
        await parts.run(leading)
    finally:
        parts.watchdog.stop()


def _stuck(parts: OperatorParts, leadership: Leadership) -> list[str]:
    age_s = parts.cycle.completed_age_s()
    if leadership.held() and age_s > STUCK_S and not parts.certificates.missing:
        return [f"no scheduling cycle was completed for {age_s:.0f} s"]
    return []


if __name__ == "__main__":
    sys.exit(main())
