"""Places between two writes of the operator or the controllers, by name, at which it is killed.

``binding:32.before`` is the 32nd binding, received by the proxy and not passed on; at
``binding:32.after`` it was carried out, without a response. Neither has code for this: the
proxy observes the writes, and kills the process by its id.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from fixtures.api_faults import Strike
from integration import operator_site
from integration.operator_site import Site
from railwright_testbed import waiting
from railwright_testbed.operator_process import OperatorProcess
from railwright_testbed.service_process import ServiceProcess

WRITES = {
    "ledger": "update ledgers",
    "placement": "create placements",
    "pod": "create pods",
    "binding": "create pods/binding",
    "status": "patch trainingjobs/status",
    "removal": "delete pods",
}
"""Each kind of write in the life of an attempt, as the proxy selects it."""

OF_CONTROLLERS = {
    "fabric": "patch fabrics/status",
    "health": "write nodehealths",
    "files": "list configmaps",
    "survey": "patch configmaps",
}
"""Likewise what the controllers write, and what they read."""

STRUCK_S = 30.0


@dataclass(frozen=True, slots=True)
class Failpoint:
    """The ``ordinal``-th write of a kind, counted from 1 and from when the failpoint is set."""

    kind: str
    ordinal: int
    after: bool

    def __str__(self) -> str:
        return f"{self.kind}:{self.ordinal}.{'after' if self.after else 'before'}"

    @classmethod
    def named(cls, name: str) -> Self:
        """The failpoint of this name."""
        place, _, side = name.partition(".")
        kind, _, ordinal = place.partition(":")
        return cls(kind, int(ordinal), side == "after")


def around(kind: str, *ordinals: int) -> tuple[Failpoint, ...]:
    """Before and after each of these writes."""
    return tuple(Failpoint(kind, n, after) for n in ordinals for after in (False, True))


class Pair:
    """Two replicas behind the site's proxy, so that a kill waits for no process to start.

    The Lease of a killed leader stays valid for 15 s. Other tests cover that a successor waits for
    it; here it is removed, as the holder is dead.
    """

    def __init__(self, site: Site, standby: OperatorProcess) -> None:
        self._site = site
        self.leader = site.operator
        self._standby = standby

    def take_over(self) -> None:
        """The leader is dead: the other one leads."""
        self.leader, self._standby = self._standby, self.leader
        self._site.admin.delete(operator_site.LEASE)

    def refill(self) -> None:
        """Start the one again that was killed."""
        if not self._standby.alive:
            self._standby.stop()
            self._standby.start()


@contextmanager
def paired(site: Site) -> Iterator[Pair]:
    """The site's operator and a standby; after the block the site's own one leads again."""
    with operator_site.replica(site.plane, "standby", through=site.proxy) as standby:
        pair = Pair(site, standby)
        try:
            yield pair
        finally:
            pair.refill()
            standby.stop()
            if pair.leader is standby:
                site.admin.delete(operator_site.LEASE)


@contextmanager
def killed_at(site: Site, leader: ServiceProcess, point: Failpoint) -> Iterator[None]:
    """What is done in the block leads the process to this write, and it dies there."""
    struck = threading.Event()

    def kill() -> None:
        os.kill(leader.pid, signal.SIGKILL)
        struck.set()

    strike = Strike(kill, carried_out=point.after)
    selector = (WRITES | OF_CONTROLLERS)[point.kind]
    rule = site.proxy.fail(selector, strike, first=point.ordinal, times=None)
    try:
        yield
        waiting.until(
            struck.is_set,
            f"{point}",
            deadline_s=STRUCK_S,
            evidence=lambda: f"{rule} {leader.log()}",
        )
    finally:
        rule.lift()
