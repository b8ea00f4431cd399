"""/healthz, /readyz and /metrics, on a port of their own.

Liveness asks only what a restart would cure; readiness says in words what is amiss. Neither names
anything of a user's. The port answers anyone who reaches it, so it listens where it is told, which
is the loopback address unless someone decides otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import CollectorRegistry
from prometheus_client.aiohttp import make_aiohttp_handler

Problems = Callable[[], Sequence[str]]
"""What is wrong now, in words; empty when nothing is. Must not block."""


class Endpoints:
    """The probe server."""

    def __init__(self, *, alive: Problems, ready: Problems, registry: CollectorRegistry) -> None:
        self._alive = alive
        self._ready = ready
        self._registry = registry
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; the real address, which matters for port 0. Raises OSError when it is taken."""
        assert self._runner is None, "started twice"
        application = web.Application()
        application.router.add_get("/healthz", _probe(self._alive))
        application.router.add_get("/readyz", _probe(self._ready))
        application.router.add_get("/metrics", make_aiohttp_handler(self._registry))
        self._runner = web.AppRunner(
            application, access_log=None, keepalive_timeout=30.0, shutdown_timeout=1.0
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        address = self._runner.addresses[0]
        return str(address[0]), int(address[1])

    async def stop(self) -> None:
        """Close the port and every connection."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None


def _probe(problems: Problems) -> Handler:
    async def answer(request: web.Request) -> web.Response:
        found = problems()
        return web.Response(status=503 if found else 200, text="\n".join(found) or "ok")

    return answer
