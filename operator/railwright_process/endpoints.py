"""Serve /healthz and /readyz on a port of their own.

/healthz fails only for what a restart would cure; /readyz lists what is missing. Neither names an
object of a user, so the port needs no credentials: kubelets have none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aiohttp import web
from aiohttp.typedefs import Handler

Problems = Callable[[], Sequence[str]]
"""The current problems, a sentence each; empty when there are none. Must not block."""


class Endpoints:
    """The server for probes."""

    def __init__(self, *, alive: Problems, ready: Problems) -> None:
        self._alive = alive
        self._ready = ready
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; return the bound address (for port 0). Raises OSError when the port is taken."""
        assert self._runner is None, "started twice"
        application = web.Application()
        application.router.add_get("/healthz", _probe(self._alive))
        application.router.add_get("/readyz", _probe(self._ready))
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
