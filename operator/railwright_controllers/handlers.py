"""Watch the Fabric with kopf: its handler passes the change on and does nothing else.

No handler decides, writes or waits, so kopf adds no finalizer and no annotation to any object. Its
timers and daemons would add a finalizer, which prevents the deletion of the Fabric while there are
no controllers. Its peering is off: leadership is a Lease. It runs in a thread of its own, where it
installs no signal handlers and blocks no other work. Any watch error but 410 ends kopf; it is then
started again.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any, cast

import kopf

from railwright_api import names
from railwright_kube import connection
from railwright_kube.backoff import Backoff

logger = logging.getLogger(__name__)

IDENTITY = "railwright-controllers"
"""Without one kopf looks up the name of its Unix user, which may have none in a container."""

BACKOFF_S = Backoff(0.5, 15.0)
LASTED_S = 60.0
"""A run that lasted this long resets the count of failures."""

Seen = Callable[[dict[str, Any], str | None], object]
"""Called from kopf's thread with (object, type of the watch event or None when listed)."""


class KopfThread:
    """kopf, restarted until stopped."""

    def __init__(
        self, kubeconfig: str | None, seen: Seen, *, clock: Callable[[], float], rng: Random
    ) -> None:
        self._kubeconfig = kubeconfig
        self._seen = seen
        self._clock = clock
        self._rng = rng
        self._stop = threading.Event()
        self._end: Callable[[], object] = lambda: None  # No run has started.
        self._thread = threading.Thread(target=self._run, name="kopf", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, *, deadline_s: float) -> None:
        """Stop the thread if it was started. Blocks up to the deadline."""
        self._stop.set()
        with contextlib.suppress(RuntimeError):  # The loop of the thread may be closed already.
            self._end()
        if self._thread.ident is not None:
            self._thread.join(timeout=deadline_s)

    def _run(self) -> None:
        failures = 0
        while not self._stop.is_set():
            started_s = self._clock()
            try:
                asyncio.run(self._operate())
            except Exception:
                logger.exception("kopf stopped", extra={"failures": failures})
            failures = failures_before(failures, lived_s=self._clock() - started_s)
            self._stop.wait(BACKOFF_S.delay_s(failures, self._rng))
            failures += 1

    async def _operate(self) -> None:
        # An event of this loop: for a threading.Event kopf waits in one more thread, whose end it
        # awaits after an error, and it kills a process that does not end.
        ended, loop = asyncio.Event(), asyncio.get_running_loop()
        self._end = functools.partial(loop.call_soon_threadsafe, ended.set)
        if self._stop.is_set():
            return
        registry = kopf.OperatorRegistry()
        kopf.on.event(names.GROUP, names.VERSION, names.FABRICS, registry=registry)(self._handle)
        kopf.on.login(registry=registry)(self._login)
        await kopf.operator(
            registry=registry,
            settings=_settings(),
            identity=cast(Any, IDENTITY),
            standalone=True,
            clusterwide=True,
            stop_flag=ended,
        )

    async def _handle(self, event: Mapping[str, Any], **_: Any) -> None:
        self._seen(dict(event["object"]), event["type"])

    def _login(self, **_: Any) -> kopf.ConnectionInfo:
        settings = connection.load(self._kubeconfig)
        return kopf.ConnectionInfo(
            server=settings.host,
            ca_path=settings.ssl_ca_cert,
            insecure=not settings.verify_ssl,
            token=connection.bearer_token(settings),
            certificate_path=settings.cert_file,
            private_key_path=settings.key_file,
        )


class _Forgetful(kopf.DiffBaseStorage):
    """Stores and compares no copy of any object: no handler here needs a difference."""

    def build(
        self, *, body: kopf.Body, extra_fields: Iterable[Any] | None = None
    ) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Store nothing."""


def failures_before(failures: int, *, lived_s: float) -> int:
    """The failures in a row before a run that lasted this long."""
    return 0 if lived_s >= LASTED_S else failures


def _settings() -> kopf.OperatorSettings:
    """The settings of kopf, with the defaults that matter here stated."""
    settings = kopf.OperatorSettings()
    settings.persistence.diffbase_storage = _Forgetful()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.watching.server_timeout = 240
    settings.watching.client_timeout = 300
    settings.watching.connect_timeout = 5
    settings.watching.inactivity_timeout = 75
    settings.networking.request_timeout = 30
    settings.process.ultimate_exiting_timeout = 10
    return settings
