"""I20: what a leader at rest reads, and how often.

    the ledger       every 10 s, to find out that another leader has written it
    signing keys     every 30 s
    each watch       opened again when it has ended, after at least 5 minutes; those of events are
                     one for each reason, and end after half a minute at the earliest
    each list        after 30 minutes of watching; those of nodes and pods also every 10 minutes, to
                     compare them with the caches, and once a minute after its begin

A leader reads Leases of nodes only while launchers are silent or missing, and no launcher is there
at rest. It reads nothing else.
"""

from __future__ import annotations

from collections import Counter

from history.invariants import ViolationError
from railwright_api import names, routes
from railwright_kube import paths
from railwright_operator.watch.start_events import REASONS
from simulator.api_server import ApiRequest

LEDGER = f"{routes.kind(names.LEDGERS)}/default"
EVENTS = "/api/v1/events"

CONFIRMED_S, KEYS_S, WATCHED_S, EVENTS_S, LISTED_S, VERIFIED_S = 10, 30, 300, 30, 1800, 600
"""The shortest time between two reads of the ledger, of signing keys, between two begins of a
watch, of one of events, two lists, and two lists of what is compared."""

WATCHED = (
    *(paths.NODES, paths.PODS, EVENTS),
    *map(routes.kind, (names.TRAINING_JOBS, names.PLACEMENTS, names.PROFILES, names.QUEUES)),
    *map(routes.kind, (names.FABRICS, names.NODE_HEALTHS)),
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/apis/node.k8s.io/v1/runtimeclasses",
)


class Reads:
    """How often the operator has read what since ``begin``."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, bool]] = Counter()

    def __repr__(self) -> str:
        return f"<Reads {self._counts.most_common()}>"

    def count(self, request: ApiRequest) -> None:
        """A read of an operator has landed; a list is counted by its first page."""
        if "continue" not in request.query:
            self._counts[request.path, "watch" in request.query] += 1

    def begin(self) -> None:
        """Count from now on."""
        self._counts.clear()

    def check(self, *, seconds: float) -> None:
        """I20, of a leader that was at rest for so long."""
        for (path, is_watch), count in sorted(self._counts.items()):
            most = _most(path, is_watch=is_watch, seconds=seconds)
            if count > most:
                what = "watched" if is_watch else "read"
                raise ViolationError(
                    f"I20: at rest {path} is {what} {count} times in {seconds:.0f} s, expected at "
                    f"most {most}"
                )


def _most(path: str, *, is_watch: bool, seconds: float) -> int:
    """How often something is read in so long."""
    if path == LEDGER:
        return 1 + int(seconds / CONFIRMED_S)
    if path == paths.SIGNING_KEYS:
        return 1 + int(seconds / KEYS_S)
    if path not in WATCHED:
        return 0
    streams = len(REASONS) if path == EVENTS else 1
    if is_watch:
        return streams * (1 + int(seconds / (EVENTS_S if path == EVENTS else WATCHED_S)))
    lists = streams * (1 + int(seconds / LISTED_S))
    is_verified = path in (paths.NODES, paths.PODS)
    return lists + (1 + int(seconds / VERIFIED_S) if is_verified else 0)
