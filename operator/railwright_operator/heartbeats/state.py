"""The state of the heartbeat server, constructed on one clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from railwright_kube.client import Api
from railwright_kube.signing_keys import PublishedKeys
from railwright_kube.tokens import Tokens
from railwright_operator.heartbeats.reception import ReceptionClock
from railwright_operator.heartbeats.sessions import Sessions
from railwright_operator.watch.records import PodRecord
from railwright_process.server_metrics import ServerMetrics


@dataclass(frozen=True, slots=True)
class HeartbeatState:
    """The messages of launchers, and the keys of their tokens."""

    reception_clock: ReceptionClock
    keys: PublishedKeys
    sessions: Sessions


def construct(
    api: Api, *, wake: Callable[[], None], clock: Callable[[], float], rng: Random
) -> HeartbeatState:
    """Construct the state. ``clock`` is monotonic seconds; ``wake`` is called for changes."""
    reception_clock = ReceptionClock(clock)
    return HeartbeatState(
        reception_clock=reception_clock,
        keys=PublishedKeys(api, clock=clock, rng=rng),
        sessions=Sessions(clock=reception_clock, wake=wake),
    )


def tokens(
    state: HeartbeatState,
    records: Mapping[str, PodRecord],
    *,
    metrics: ServerMetrics,
    clock: Callable[[], float],
) -> Tokens:
    """The verifier for tokens of live pods; ``records`` are pods by UID, ``clock`` is seconds since
    the epoch."""

    def node_of(uid: str) -> str | None:
        record = records.get(uid)
        return None if record is None or record.terminal else record.node

    return Tokens(state.keys, node_of=node_of, checks=metrics.token_checks, clock=clock)
