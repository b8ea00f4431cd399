"""Leader election with a Lease, in a thread of its own.

A renewal must not wait for a busy event loop, so the thread has a client of its own. No wall clocks
are compared. A candidate takes the Lease over when it has seen it unchanged for its duration. A
leader counts from the *start* of its last successful renewal, the earliest moment at which others
may have begun to count, and stops ``MARGIN_S`` before they may take over. In an annotation of the
Lease the candidates find the leader's address.

A Lease alone cannot fence: a request in flight may land late. The ledger's epoch and UID
preconditions refuse such requests; the Lease only makes them rare. A process that lost the Lease
does not try again: ``on_lost`` is called once, and the process ends, as its state is void.
"""

from __future__ import annotations

import ipaddress
import logging
import re
import threading
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from random import Random
from typing import Any

import urllib3
from kubernetes.client.exceptions import ApiException, OpenApiException
from kubernetes.config import ConfigException
from kubernetes.leaderelection.leaderelectionrecord import LeaderElectionRecord
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock

from kubernetes import client
from railwright_kube import connection

logger = logging.getLogger(__name__)

MARGIN_S = 2.0
SOON_S = 0.1
VACANT = ""
ADDRESS = "railwright.dev/address"
PORT = re.compile(r"[0-9]{1,5}")

UNUSABLE = (OpenApiException, urllib3.exceptions.HTTPError, OSError, ValueError)
"""What the ``kubernetes`` package raises for a request without a usable answer."""


@dataclass(frozen=True, slots=True)
class LeaseTimings:
    """The duration of a Lease, the deadline of renewals, and the interval between them."""

    duration_s: float = 15.0
    renew_deadline_s: float = 10.0
    retry_s: float = 2.0

    def __post_init__(self) -> None:
        if not self.retry_s < self.renew_deadline_s < self.duration_s - MARGIN_S:
            raise ValueError(
                f"retry_s {self.retry_s} < renew_deadline_s {self.renew_deadline_s} < duration_s "
                f"{self.duration_s} - {MARGIN_S} does not hold"
            )


@dataclass(frozen=True, slots=True)
class _Sighting:
    """When this version of another holder's Lease was first seen, and the duration in it.
    ``address`` is the holder's host:port, empty if it is not known."""

    version: str
    since_s: float
    held_s: float
    address: str


class _RenewableLease(LeaseLock):
    """Keeps the response to an update, so that the next one needs no read before it: with two
    requests for each renewal, a leader on a slow API server would be late. ``address`` is written
    with each."""

    address = ""

    def update(self, name: str, namespace: str, updated_record: LeaderElectionRecord) -> bool:
        """Whether the Lease as last seen became this record."""
        held = self.lease_reference
        if held is None:
            return False
        held.spec = self.get_lease_spec(  # type: ignore[no-untyped-call]
            updated_record, held.spec
        )
        # Together with the holder: another one may not know the annotation, and leave it there.
        stated = {ADDRESS: f"{self.identity} {self.address}"}
        held.metadata.annotations = (held.metadata.annotations or {}) | stated
        try:
            self.lease_reference = self.api_instance.replace_namespaced_lease(
                name=name, namespace=namespace, body=held
            )
        except ApiException as error:
            logger.info("lease update refused", extra={"lease": name, "error": str(error.reason)})
            self.lease_reference = None
            return False
        return True


@dataclass(eq=False, repr=False)
class Leadership:
    """A candidate for the Lease ``namespace/name``.

    ``address`` is the host:port at which this process is reached; empty if it is not known.
    ``clock`` is monotonic seconds. ``on_gained`` and ``on_lost`` are called at most once each, in
    the thread of the Lease, and must not block.
    """

    kubeconfig: str | None
    _: KW_ONLY
    namespace: str
    name: str
    identity: str
    address: str = ""
    on_gained: Callable[[], object]
    on_lost: Callable[[], object]
    clock: Callable[[], float]
    rng: Random
    timings: LeaseTimings = LeaseTimings()

    def __post_init__(self) -> None:
        self._lock: Any = None
        self._sighting: _Sighting | None = None
        self._acquired_at = ""
        self._renewed_s: float | None = None
        self._taken = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, *, deadline_s: float) -> None:
        """Stop, and release the Lease if it is held. Blocks for at most ``deadline_s``."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=deadline_s)

    def held(self) -> bool:
        """Whether this process may write now: no other process can hold the Lease."""
        renewed_s = self._renewed_s
        return (
            renewed_s is not None and self.clock() < renewed_s + self.timings.duration_s - MARGIN_S
        )

    def leader_address(self) -> str:
        """The host:port of another process that holds the Lease; empty while it is not known."""
        seen = self._sighting
        if seen is None or self.held() or self.clock() - seen.since_s > seen.held_s:
            return ""
        return seen.address

    def _run(self) -> None:
        try:
            self._campaign()
        except Exception:
            logger.exception("lease thread failed", extra=self._context())
        if self._stopping.is_set():
            self._release()
            return
        self._renewed_s = None
        logger.error("lease lost", extra=self._context())
        self.on_lost()

    def _campaign(self) -> None:
        """Acquire the Lease, then renew it; return when it is lost or after ``stop``."""
        while not self._stopping.is_set():
            started_s = self.clock()
            if self._renewed_s is not None and not self.held():
                # The process was paused. A renewal could still succeed.
                return
            if self._attempt(started_s):
                is_new = self._renewed_s is None
                self._renewed_s = started_s
                if is_new:
                    logger.info("lease gained", extra=self._context())
                    self.on_gained()
            elif self._is_lost():
                return
            self._stopping.wait(self._pause_s())

    def _pause_s(self) -> float:
        """Seconds until the next attempt; another holder's Lease is tried as soon as it expires."""
        pause_s = self.timings.retry_s * (0.9 + self.rng.random() / 5)
        if self._sighting is None or self._renewed_s is not None:
            return pause_s
        left_s = self._sighting.since_s + self._sighting.held_s - self.clock()
        return min(pause_s, left_s + SOON_S) if left_s > 0 else pause_s

    def _is_lost(self) -> bool:
        """Whether this process led, and another holds the Lease or renewals failed for too long."""
        if self._renewed_s is None:
            return False
        return self._taken or self.clock() - self._renewed_s > self.timings.renew_deadline_s

    def _attempt(self, now_s: float) -> bool:
        """Take or renew the Lease if it is ours, free, or expired; False for any failure."""
        try:
            return self._take(now_s)
        except (*UNUSABLE, ConfigException) as error:
            return self._failed(error)

    def _failed(self, error: Exception) -> bool:
        """Log the failure and drop the client: its credentials or connection may be the cause."""
        logger.warning("lease not renewed", extra=self._context() | {"error": str(error)})
        self._lock = None
        return False

    def _take(self, now_s: float) -> bool:
        lock = self._opened()
        if self._renewed_s is not None and lock.update(self.name, self.namespace, self._record()):
            return True
        found, seen = lock.get(self.name, self.namespace)
        if not found:
            if seen.status != 404:
                raise seen
            return self._written(lock.create(self.name, self.namespace, self._record()))
        if self._renewed_s is not None and seen.holder_identity != self.identity:
            self._taken = True
            return False
        if seen.holder_identity not in (self.identity, None) and not self._is_left(now_s):
            return False
        return self._written(lock.update(self.name, self.namespace, self._record()))

    def _written(self, done: bool) -> bool:
        """Log a refused write. LeaseLock logs the reason at INFO."""
        if not done:
            logger.warning("lease write refused", extra=self._context())
        return done

    def _is_left(self, now_s: float) -> bool:
        """Whether another holder's Lease was seen unchanged for its duration."""
        lease = self._opened().lease_reference
        version = str(lease.metadata.resource_version)
        if self._sighting is None or self._sighting.version != version:
            held_s = lease.spec.lease_duration_seconds or self.timings.duration_s
            address = _stated_address(lease, other_than=self.address)
            self._sighting = _Sighting(version, self.clock(), held_s, address)
        return now_s - self._sighting.since_s > self._sighting.held_s

    def _release(self) -> None:
        """Clear the holder if it is this process."""
        if self._renewed_s is None:
            return
        self._renewed_s = None
        try:
            lock = self._opened()
            found, seen = lock.get(self.name, self.namespace)
            if found and seen.holder_identity == self.identity:
                lock.update(self.name, self.namespace, self._record(holder=VACANT, duration_s=1))
        except UNUSABLE as error:
            self._failed(error)

    def _record(self, *, holder: str | None = None, duration_s: float = 0) -> LeaderElectionRecord:
        now = str(datetime.now(UTC))
        self._acquired_at = self._acquired_at or now
        return LeaderElectionRecord(  # type: ignore[no-untyped-call]
            self.identity if holder is None else holder,
            str(int(duration_s or self.timings.duration_s)),
            self._acquired_at,
            now,
        )

    def _opened(self) -> Any:
        """The lock, with a client whose requests end within half of the renew deadline."""
        if self._lock is None:
            blocking = connection.blocking_client(
                self.kubeconfig, deadline_s=self.timings.renew_deadline_s / 2
            )
            self._lock = _RenewableLease(  # type: ignore[no-untyped-call]
                self.name, self.namespace, self.identity
            )
            self._lock.address = self.address
            self._lock.api_instance = client.CoordinationV1Api(blocking)
        return self._lock

    def _context(self) -> dict[str, object]:
        return {"lease": f"{self.namespace}/{self.name}", "identity": self.identity}


def _stated_address(lease: Any, *, other_than: str) -> str:
    """The host:port that the holder of a Lease stated in it; empty if it is none. It is sent to
    whoever connects."""
    stated = str((lease.metadata.annotations or {}).get(ADDRESS, ""))
    holder, _, address = stated.rpartition(" ")
    host, _, port = address.rpartition(":")
    if holder != lease.spec.holder_identity or address == other_than or not PORT.fullmatch(port):
        return ""
    try:
        ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return ""
    return address
