"""``railwright-operator``: configuration from the environment, JSON log lines, then run."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from prometheus_client import CollectorRegistry
from pythonjsonlogger.json import JsonFormatter

from railwright_kube import backoff
from railwright_kube.client import Api
from railwright_kube.errors import RequestFailed
from railwright_kube.leadership import Leadership
from railwright_operator import garbage, metrics, settings, watchdog, wiring
from railwright_operator.endpoints import Endpoints
from railwright_operator.handlers import KopfThread
from railwright_operator.settings import Settings, SettingsError
from railwright_operator.wiring import OperatorParts
from railwright_operator.write import defaults, hang_mark

logger = logging.getLogger("railwright_operator")

LEASE = "railwright-operator"
STUCK_S = 60.0
"""A leader that completes no cycle for this long reports itself as not alive, to be restarted."""

FIRST_TOPOLOGY_S = 10.0
"""How long jobs of a new installation wait until the Fabric has a topology to place them by."""

RELEASE_S, GIVE_UP_S = 20.0, 2.0
"""How long the release of the Lease may take: when the process stops, when its cycle hangs."""

BACKOFF_BASE_S = 0.5
BACKOFF_CAP_S = 10.0


def main() -> int:
    """Run until a signal (0) or until leadership is lost (1); 2 when an option is wrong."""
    _log_as_json()
    garbage.collect_rarely()
    try:
        chosen = settings.from_environment(os.environ)
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    return asyncio.run(_run(chosen))


async def _run(chosen: Settings) -> int:
    kubeconfig = os.environ.get("KUBECONFIG") or None
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
        on_gained=functools.partial(loop.call_soon_threadsafe, leading.set),
        on_lost=functools.partial(loop.call_soon_threadsafe, lost.set),
        clock=wiring.clock,
        rng=wiring.rng(),
    )
    async with Api(
        kubeconfig,
        may_write=leadership.held,
        metrics=series.api,
        clock=wiring.clock,
        rng=wiring.rng(),
    ) as api:
        parts = OperatorParts(
            api,
            chosen,
            registry=registry,
            series=series,
            is_leader=leadership.held,
            mark_hung=functools.partial(hang_mark.write, kubeconfig),
            give_up_lease=functools.partial(leadership.stop, deadline_s=GIVE_UP_S),
        )
        kopf = KopfThread(
            kubeconfig,
            lambda *news: loop.call_soon_threadsafe(parts.informers.seen, *news),
            clock=wiring.clock,
            rng=wiring.rng(),
        )
        probes = Endpoints(
            alive=lambda: _stuck(parts, leadership),
            ready=lambda: [*_unready(parts)],
            registry=registry,
        )
        await probes.start(*chosen.probe_address)
        await parts.server.start(*chosen.heartbeat_address)
        leadership.start()
        parts.watchdog.start()
        try:
            return await _until(stop, lost, _work(api, parts, kopf, leading))
        finally:
            parts.watchdog.stop()
            watchdog.end_in_time()
            await parts.server.stop()
            await probes.stop()
            await asyncio.to_thread(leadership.stop, deadline_s=RELEASE_S)
            await asyncio.to_thread(kopf.stop, deadline_s=5.0)


async def _work(api: Api, parts: OperatorParts, kopf: KopfThread, leading: asyncio.Event) -> None:
    """Watch nodes from the start. Watch everything else, and run cycles, once this process leads.

    The first cycle needs complete lists: an attempt in the ledger whose job has not been read yet
    would look like one whose job was deleted. kopf starts after these lists, as its own lists of
    the same objects would delay them.
    """
    async with asyncio.TaskGroup() as tasks:
        for start in parts.tasks:
            tasks.create_task(start())
        await leading.wait()
        tasks.create_task(parts.mapping_requests.run())  # They start while lists are read.
        await _persist(lambda: defaults.ensure(api))
        await _persist(parts.cycle.take_over)
        for informer in parts.informers.leading:
            tasks.create_task(informer.run())
        for informer in (*parts.informers.leading, *parts.informers.warm):
            await informer.wait_synced()
        garbage.keep_for_good()
        kopf.start()
        for start in parts.leading:
            tasks.create_task(start())
        await parts.informers.interconnect.wait_first(FIRST_TOPOLOGY_S)
        await parts.cycle.run()


async def _persist(request: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Retry the request until it succeeds."""
    failures = 0
    while True:
        try:
            await request()
            return
        except RequestFailed as error:
            logger.warning(
                "request failed, retrying", extra={"error": str(error), "failures": failures}
            )
        await asyncio.sleep(
            backoff.delay_s(failures, base_s=BACKOFF_BASE_S, cap_s=BACKOFF_CAP_S, rng=wiring.rng())
        )
        failures += 1


async def _until(stop: asyncio.Event, lost: asyncio.Event, work: Coroutine[Any, Any, None]) -> int:
    """Work until a signal (0) or until leadership is lost (1)."""
    working = asyncio.create_task(work)
    stopping, losing = asyncio.create_task(stop.wait()), asyncio.create_task(lost.wait())
    done, _ = await asyncio.wait((working, stopping, losing), return_when=asyncio.FIRST_COMPLETED)
    for task in (working, stopping, losing):
        task.cancel()
    await asyncio.gather(working, return_exceptions=True)
    if working in done:
        logger.error("leader stopped", exc_info=working.exception())
        return 1
    return 0 if stopping in done else 1


def _stuck(parts: OperatorParts, leadership: Leadership) -> list[str]:
    age_s = parts.cycle.completed_age_s()
    if leadership.held() and age_s > STUCK_S:
        return [f"no scheduling cycle was completed for {age_s:.0f} s"]
    return []


def _unready(parts: OperatorParts) -> Iterator[str]:
    if not parts.received.keys.available:
        yield "the signing keys of tokens have not been read yet"
    yield from (
        f"{informer!r} has no whole list yet"
        for informer in parts.informers.warm
        if not informer.synced
    )


def _log_as_json() -> None:
    """Log one JSON object a line; the ``extra`` fields of a call are beside its message."""
    formatter = JsonFormatter(
        ("levelname", "name", "message"),
        rename_fields={"levelname": "level", "name": "logger", "exc_info": "trace"},
        timestamp="time",
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("kopf").setLevel(logging.WARNING)


if __name__ == "__main__":
    sys.exit(main())
